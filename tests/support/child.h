// A process of its own for what ends one, or needs all threads to be its own.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "support/catch.h"

namespace weft::test {

// False: the sanitizers' allocators lock nothing over a fork, so that a child may find them taken
// where other threads of its parent allocate.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool can_allocate_amid_threads = false;
#else
inline constexpr bool can_allocate_amid_threads = true;
#endif

// What the body returned, or minus the signal that ended it.
inline int end_of_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        for (const int sig : {SIGABRT, SIGTERM, SIGINT}) ::signal(sig, SIG_DFL);
        ::alarm(60);  // One that hangs must not outlive its test.
        (void)::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
        ::_exit(body());
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace weft::test
