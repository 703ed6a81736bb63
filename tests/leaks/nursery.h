// Child processes that tests kill. Their parent is a process that was forked before the test had a
// thread, a socket or a mapping of weft, so that the children hold no resources of the test.
#pragma once

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "support/catch.h"
#include "support/test_timeout.h"

namespace weft::test {

class Nursery {
  public:
    // The function with which a child reports, and the child's body, which never returns.
    using Tell = std::function<void(const std::string&)>;
    using Child = std::function<void(const std::string& order, const Tell& tell)>;

    explicit Nursery(const Child& child) {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        ours_ = base::UniqueFd(ends[0]);
        const base::UniqueFd theirs(ends[1]);
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ == 0) {
            ::close(ours_.get());  // A UniqueFd does not close descriptors of its parent process.
            raise_children(theirs.get(), child);
        }
        const timeval limit{test_timeout / 1s, 0};
        REQUIRE(::setsockopt(ours_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    }
    ~Nursery() {
        ::kill(pid_, SIGKILL);  // After a failure it may wait for a child, which dies with it.
        ::waitpid(pid_, nullptr, 0);
    }
    Nursery(const Nursery&) = delete;
    Nursery& operator=(const Nursery&) = delete;

    // Starts a child; one at a time.
    void bear(const std::string& order) {
        said_.clear();
        say(order);
        const std::string born = hear('p');
        REQUIRE(born.size() == sizeof child_);
        std::memcpy(&child_, born.data(), sizeof child_);
    }
    // The first report of the child.
    std::string hear() { return said_.empty() ? hear('t') : std::exchange(said_, {}); }
    // The child is dead when this returns.
    void kill() {
        REQUIRE(::kill(child_, SIGKILL) == 0);
        (void)hear('w');
    }
    // Stops the child; its device continues to work for it.
    void stop() { REQUIRE(::kill(child_, SIGSTOP) == 0); }
    void go_on() { REQUIRE(::kill(child_, SIGCONT) == 0); }

  private:
    // A message is a letter and a body: 'p' a child was started, 't' its report, 'w' it died.
    std::string hear(char kind) {
        char text[512];
        for (;;) {
            const ssize_t bytes = ::recv(ours_.get(), text, sizeof text, 0);
            REQUIRE(bytes > 0);
            std::string body(text + 1, static_cast<std::size_t>(bytes) - 1);
            if (text[0] == kind) return body;
            if (text[0] == 't') said_ = std::move(body);
        }
    }
    void say(const std::string& text) {
        REQUIRE(::send(ours_.get(), text.data(), text.size(), MSG_NOSIGNAL) > 0);
    }
    static void tell(int socket, char kind, const std::string& body) {
        const std::string text = kind + body;
        if (::send(socket, text.data(), text.size(), MSG_NOSIGNAL) < 0) ::_exit(2);
    }

    [[noreturn]] static void raise_children(int socket, const Child& child) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        char text[512];
        ssize_t bytes = 0;
        while ((bytes = ::recv(socket, text, sizeof text, 0)) > 0) {
            const std::string order(text, static_cast<std::size_t>(bytes));
            const pid_t pid = ::fork();
            if (pid == 0) {
                ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                child(order, [socket](const std::string& body) { tell(socket, 't', body); });
                ::_exit(3);
            }
            tell(socket, 'p', {reinterpret_cast<const char*>(&pid), sizeof pid});
            ::waitpid(pid, nullptr, 0);
            tell(socket, 'w', "");
        }
        ::_exit(0);
    }

    pid_t pid_ = -1;
    pid_t child_ = -1;
    base::UniqueFd ours_;
    std::string said_;
};

}  // namespace weft::test
