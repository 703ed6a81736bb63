// A process of its own for what ends one, or needs all threads to be its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>

#include "support/catch.h"

namespace weft::test {

// What the body returned, or minus the signal that ended it.
inline int end_of_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        for (const int sig : {SIGABRT, SIGTERM, SIGINT}) ::signal(sig, SIG_DFL);
        ::alarm(60);  // One that hangs must not outlive its test.
        [[maybe_unused]] const auto quiet = std::freopen("/dev/null", "w", stderr);
        ::_exit(body());
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace weft::test
