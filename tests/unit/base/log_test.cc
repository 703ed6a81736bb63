#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "base/assert.h"
#include "base/fork.h"
#include "support/catch.h"
#include "support/child.h"

using namespace weft;

TEST_CASE("log: lines about peers are limited to ten a second, and omitted ones are counted") {
    std::vector<std::string> lines;
    base::Log log(LogLevel::warning,
                  [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
    const TimePoint start(1h);
    for (int i = 0; i < 100'000; ++i)
        log.write_rate_limited(LogLevel::warning, start + i * 1us, "x");
    CHECK(lines.size() == base::Log::peer_lines_per_s);
    log.write_rate_limited(LogLevel::info, start + 2s, "below the level");
    log.write_rate_limited(LogLevel::warning, start + 2s, "y");
    CHECK(lines.back() == "y (99990 lines about peers were left out before)");
    log.write_rate_limited(LogLevel::error, start + 2s, "z");
    CHECK(lines.back() == "z");
    // Lines about the program itself are not limited.
    for (int i = 0; i < 100; ++i) log.warning("own line");
    CHECK(lines.size() == base::Log::peer_lines_per_s + 102);
}

// A child that is forked while another thread runs `busy` writes its first line.
static void check_child_logs(void (*busy)()) {
    // In a separate process with a standard error that is discarded.
    const int end = test::end_of_child([&] {
        std::thread([busy] {
            while (true) busy();
        }).detach();
        for (int i = 0; i < 300; ++i) {
            const pid_t child = ::fork();
            if (child == 0) {
                ::alarm(20);
                base::Log().warning("hello");
                ::_exit(0);
            }
            int status = 0;
            if (::waitpid(child, &status, 0) != child || status != 0) return 1;
        }
        return 0;
    });
    CHECK(end == 0);
}

TEST_CASE("log: a forked child writes to standard error when its parent was writing there") {
    if (!test::can_allocate_amid_threads) return;
    check_child_logs([] {
        static base::Log log;
        log.warning("a line of the parent's");
    });
}

TEST_CASE("log: a forked child writes the time when its parent was in localtime_r()") {
    check_child_logs([] {
        const std::time_t now = std::time(nullptr);
        std::tm parts{};
        ::localtime_r(&now, &parts);
    });
}

TEST_CASE("log: a line on standard error begins with its time in UTC") {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const int said = ends[1];
    const std::time_t before = std::time(nullptr);
    CHECK(test::end_of_child([said] {
              ::dup2(said, STDERR_FILENO);
              base::Log().warning("low on memory");
              return 0;
          }) == 0);
    char text[128] = {};
    const ssize_t bytes = ::read(ends[0], text, sizeof text - 1);
    ::close(ends[0]);
    ::close(ends[1]);
    const std::string line(text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    CHECK_THAT(line, Catch::Matchers::EndsWith(" warning weft: low on memory\n"));
    std::tm parts{};
    unsigned ms = 0;
    char zone = 0;
    REQUIRE(std::sscanf(line.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3u%c", &parts.tm_year,
                        &parts.tm_mon, &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec,
                        &ms, &zone) == 8);
    CHECK(zone == 'Z');
    parts.tm_year -= 1900;
    parts.tm_mon -= 1;
    const std::time_t written = ::timegm(&parts);
    CHECK(written >= before);
    CHECK(written <= std::time(nullptr));
}

TEST_CASE("log: a full standard error does not block, and omitted lines are counted") {
    const int end = test::end_of_child([] {
        int ends[2];
        if (::pipe(ends) != 0 || ::dup2(ends[1], STDERR_FILENO) < 0) return 2;
        ::alarm(20);
        base::Log log;
        const std::string line(3000, 'x');
        for (int i = 0; i < 100; ++i) log.warning(line);  // A pipe has 64 KiB.
        const auto all_there = [&] {
            std::string text(1 << 20, ' ');
            const ssize_t bytes = ::read(ends[0], text.data(), text.size());
            text.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
            return text;
        };
        const std::size_t first = all_there().size();
        if (first < 3000 || first > (64 << 10)) return 3;
        log.warning("after");
        std::string text = all_there();
        if (text.find("log lines were left out: standard error had no room\n") == text.npos)
            return 4;
        if (!text.ends_with("warning weft: after\n")) return 5;
        // A newline ends a truncated line before the next line.
        log.warning(std::string(70'000, 'y'));
        (void)all_there();
        log.warning("whole");
        text = all_there();
        if (!text.starts_with("\nweft: 1 log lines were left out")) return 6;
        if (!text.ends_with("warning weft: whole\n")) return 7;
        // Without a reader no SIGPIPE ends the program.
        ::close(ends[0]);
        log.warning("unread");
        return 0;
    });
    CHECK(end == 0);
}

TEST_CASE("a full standard error does not delay the end of a program") {
    const auto end_with_full_pipe = [](void (*what)()) {
        return test::end_of_child([what] {
            int ends[2];
            if (::pipe2(ends, O_NONBLOCK) != 0) return 2;
            const char full[4096] = {};
            while (::write(ends[1], full, sizeof full) > 0) {
            }
            if (::fcntl(ends[1], F_SETFL, 0) != 0 || ::dup2(ends[1], STDERR_FILENO) < 0) return 3;
            ::alarm(20);
            what();
            return 0;
        });
    };
    CHECK(end_with_full_pipe([] { base::abort_misused("a call", "for no reason"); }) == -SIGABRT);
    CHECK(end_with_full_pipe([] { base::assertion_failed("fact", "file", 1); }) == -SIGABRT);
    CHECK(end_with_full_pipe([] { base::report_forked("a call"); }) == 0);
}
