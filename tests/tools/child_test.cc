// Processes that `weft perf` starts, and their unexpected behaviour.
#include "perf/child.h"

#include <csignal>
#include <string>
#include <vector>

#include "support/catch.h"

using namespace weft;
using namespace weft::tool;

static Child start(std::vector<std::string> words, Child::Options options = {}) {
    Result<Child> child = Child::start(words, options);
    REQUIRE(child);
    return *std::move(child);
}

static Child shell(const std::string& script, Child::Options options = {}) {
    return start({"sh", "-c", script}, options);
}

TEST_CASE("child: lines are read one by one, then the rest at once") {
    Child child = shell("echo one; echo; echo three; printf four");
    CHECK(child.line(20s).value() == "one");
    CHECK(child.line(20s).value().empty());
    CHECK(child.finish(20s).value() == "three\nfour");
}

TEST_CASE("child: a program that does not exist fails at once") {
    Child child = start({"weft-no-such-program"});
    CHECK(child.line(20s).status().code() == Code::unavailable);
    CHECK(child.finish(20s).status().code() == Code::unavailable);
}

TEST_CASE("child: a failure is reported with the last line, including standard error on request") {
    CHECK(shell("echo begun; echo broken; exit 3").finish(20s).status().text() == "broken");
    CHECK(shell("echo broken >&2; exit 3", {.with_errors = true}).finish(20s).status().text() ==
          "broken");
}

TEST_CASE("child: reading a line times out when the child is silent or never ends the line") {
    CHECK(shell("exec sleep 600").line(1ms).status().code() == Code::deadline_exceeded);
    CHECK(shell("exec tr '\\0' x </dev/zero").line(50ms).status().code() ==
          Code::deadline_exceeded);
}

TEST_CASE("child: finish times out when the child is silent or has closed its output") {
    CHECK(shell("exec sleep 600").finish(1ms).status().code() == Code::deadline_exceeded);
    CHECK(shell("exec >&-; exec sleep 600").finish(200ms).status().code() ==
          Code::deadline_exceeded);
}

TEST_CASE("child: a child that ignores SIGTERM is killed") {
    Child child = shell("trap '' TERM; echo $$; while :; do sleep 0.05; done");
    const pid_t pid = static_cast<pid_t>(std::stol(child.line(20s).value()));
    CHECK(::kill(pid, 0) == 0);
    child.stop();
    CHECK(::kill(pid, 0) == -1);
    child.stop();  // Once more: no process is left to end.
}
