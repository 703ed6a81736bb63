// Runs code in a child process: for code that ends a process, or that must be its only thread.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "support/catch.h"

namespace weft::test {

// fork(). AddressSanitizer does not hold its locks across a fork, so a child would wait for ever on
// a lock that another thread of its parent held. Such a child is killed, and another one is forked.
// Leaks of the child are not checked.
pid_t fork_child();

// False: a child of fork() may find the sanitizer's allocator locks held by other threads of its
// parent.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool can_allocate_amid_threads = false;
#else
inline constexpr bool can_allocate_amid_threads = true;
#endif

// False: ThreadSanitizer ends a forked child in which a new thread gets a pthread_t that a thread
// of its parent has.
#ifdef __SANITIZE_THREAD__
inline constexpr bool can_start_threads_in_child = false;
#else
inline constexpr bool can_start_threads_in_child = true;
#endif

// Closes all but the standard descriptors, also while threads use them: ThreadSanitizer reports
// close() as a race. (Kernels before 5.9 have no close_range().)
inline void close_descriptors() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65536));
    for (int fd = STDERR_FILENO + 1; fd < end; ++fd) ::syscall(SYS_close, fd);
}

// A child that runs the body, with `error_fd` as its standard error.
inline pid_t start_child(const std::function<int()>& body, int error_fd) {
    const pid_t child = fork_child();
    REQUIRE(child >= 0);
    if (child == 0) {
        for (const int sig : {SIGABRT, SIGTERM, SIGINT}) ::signal(sig, SIG_DFL);
        ::alarm(60);  // A child that hangs must not outlive its test.
        (void)::dup2(error_fd, STDERR_FILENO);
        ::_exit(body());
    }
    return child;
}

inline int end_of(pid_t child) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// Returns the exit status of the body, or minus the signal that ended it.
inline int end_of_child(const std::function<int()>& body) {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    const int end = end_of(start_child(body, nowhere));
    ::close(nowhere);
    return end;
}

// The same, with the text that it wrote to its standard error.
struct ChildOutput {
    int end = 0;
    std::string text;
};
inline ChildOutput output_of_child(const std::function<int()>& body) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const pid_t child = start_child(body, ends[1]);
    ::close(ends[1]);
    ChildOutput output;
    char part[512];
    for (ssize_t got = 0; (got = ::read(ends[0], part, sizeof part)) > 0;) {
        output.text.append(part, static_cast<std::size_t>(got));
    }
    ::close(ends[0]);
    output.end = end_of(child);
    return output;
}

// A misuse by a program ends as documented, in a child: a hang ends with a signal, too. `end`: as
// of end_of_child().
inline void check_mistake(const char* name, const std::function<int()>& make, int end,
                          const std::vector<std::string>& words) {
    INFO(name);
    const ChildOutput output = output_of_child([&make] {
        ::alarm(20);
        return make();
    });
    CAPTURE(output.text);
    CHECK(output.end == end);
    for (const std::string& word : words) CHECK(output.text.find(word) != word.npos);
    CHECK(output.text.find("assertion") == std::string::npos);
    CHECK(output.text.find("Sanitizer") == std::string::npos);
}

// A misuse that aborts the program with a sentence that has these words.
struct Mistake {
    const char* name;
    std::function<void()> make;
    std::vector<std::string> words;
};
inline void check(const Mistake& mistake) {
    check_mistake(
        mistake.name, [&mistake] { return mistake.make(), 0; }, -SIGABRT, mistake.words);
}

}  // namespace weft::test
