// Another process in a test, for faults of a process: being stopped or killed.
#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "support/ofi_rig.h"

namespace weft::test {

// A few bytes shared by both processes.
class SharedBytes {
  public:
    explicit SharedBytes(std::size_t bytes)
        : bytes_(bytes),
          memory_(
              ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
    ~SharedBytes() { ::munmap(memory_, bytes_); }
    SharedBytes(const SharedBytes&) = delete;
    SharedBytes& operator=(const SharedBytes&) = delete;

    template <class T>
    T* as() const {
        return static_cast<T*>(memory_);
    }

  private:
    std::size_t bytes_;
    void* memory_;
};

// Runs `body` in a forked process until it returns or is killed, at the latest by the destructor.
class Process {
  public:
    // One end of a pipe of datagrams.
    class Self {
      public:
        explicit Self(base::UniqueFd fd) : fd_(std::move(fd)) {}
        void tell(const std::string& text) {
            if (::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) ::_exit(2);
        }
        std::string hear() {
            char text[512];
            const ssize_t bytes = ::recv(fd_.get(), text, sizeof text, 0);
            return {text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0};
        }

      private:
        base::UniqueFd fd_;
    };

    explicit Process(const std::function<void(Self&)>& body) : ours_(base::UniqueFd()) {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            ::close(ends[0]);
            Self self{base::UniqueFd(ends[1])};
            body(self);
            ::_exit(0);
        }
        ::close(ends[1]);
        ours_ = Self(base::UniqueFd(ends[0]));
    }
    ~Process() { kill(); }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    std::string hear() { return ours_.hear(); }
    void say(const std::string& text) { ours_.tell(text); }
    void signal(int number) { ::kill(pid_, number); }
    void wait_stopped() {
        int status = 0;
        ::waitpid(pid_, &status, WUNTRACED);
    }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }

  private:
    pid_t pid_ = -1;
    Self ours_;
};

}  // namespace weft::test
