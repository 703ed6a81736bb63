// Tasks for tests of combinators, and one runtime on virtual time to run them.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include <weft/combine.h>

#include "support/echo.h"
#include "support/gate.h"

namespace combine_test {

using namespace weft;
using namespace weft::test;
using echo::v1::EchoClient;
using echo::v1::EchoReply;

struct Bench {
    int alive = 0;
    std::vector<std::string> ended;
};

inline Task<int> value_after(Duration time, int value, Bench& bench) {
    const Alive local(bench.alive);
    (void)co_await sleep_for(time);
    bench.ended.push_back(std::to_string(value));
    co_return value;
}

inline Task<std::string> text_after(Duration time, std::string text, Bench& bench) {
    const Alive local(bench.alive);
    (void)co_await sleep_for(time);
    bench.ended.push_back(text);
    co_return text;
}

inline Task<void> nothing_after(Duration time, Bench& bench) {
    const Alive local(bench.alive);
    (void)co_await sleep_for(time);
    bench.ended.push_back("nothing");
}

inline Task<int> throws_after(Duration time, std::string text, Bench& bench) {
    const Alive local(bench.alive);
    (void)co_await sleep_for(time);
    bench.ended.push_back("thrown " + text);
    throw std::runtime_error(text);
}

inline Task<Status> held(EchoClient stub) {
    co_return (co_await stub.Held(request_of("x"))).status();
}

inline Task<Result<EchoReply>> later(EchoClient stub, std::string text) {
    co_return co_await stub.Later(request_of(text));
}

// One runtime on virtual time.
struct Alone {
    Bench bench;
    SimRig rig;
    Runtime& runtime = rig.add("");
    Duration took{};

    template <class T>
    T run(Task<T> task) {
        std::optional<T> result;
        const TimePoint start = rig.clock->now();
        runtime.spawn(keep(std::move(task), result, start, took));
        REQUIRE(rig.run_until([&] { return result.has_value(); }));
        return *std::move(result);
    }
    // The text of the exception that it throws.
    template <class T>
    std::string thrown(Task<T> task) {
        return run(text_of(std::move(task)));
    }

  private:
    template <class T>
    static Task<void> keep(Task<T> task, std::optional<T>& into, TimePoint start, Duration& took) {
        T result = co_await task;
        took = now() - start;
        into.emplace(std::move(result));
    }
    template <class T>
    static Task<std::string> text_of(Task<T> task) {
        try {
            (void)co_await task;
        } catch (const std::exception& error) {
            co_return error.what();
        }
        co_return "";
    }
};

}  // namespace combine_test
