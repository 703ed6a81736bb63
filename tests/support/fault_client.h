// The client of a FaultServer, in one thread that the test turns.
#pragma once

#include <string>
#include <vector>

#include <weft/runtime.h>

#include "support/catch.h"
#include "support/fault_server.h"
#include "support/outcomes.h"
#include "support/test_timeout.h"

namespace weft::test {

class FaultClient {
  public:
    explicit FaultClient(const std::string& uri) : channel(runtime.connect(uri).value()) {}

    // One call that must succeed; returns its reply.
    std::string ask(const MethodId& method) {
        bool done = false;
        std::string answer;
        Status outcome;
        channel.call(method, {}, {.timeout = test_timeout},
                     [&](const Status& status, ByteView reply) {
                         outcome = status;
                         answer = as_text(reply);
                         done = true;
                     });
        REQUIRE(runtime.turn_until([&] { return done; }, 2 * test_timeout));
        INFO(outcome.to_string());
        REQUIRE(outcome.ok());
        return answer;
    }
    RegionRef ref(const MethodId& method) {
        return RegionRef::decode(as_bytes(ask(method))).value();
    }

    // Starts calls that stay in their handlers; returns when all have arrived.
    void hold(std::size_t count, Outcomes& outcomes, CallOptions options = {}) {
        options.timeout = 2 * test_timeout;
        const std::size_t before = held();
        for (std::size_t i = 0; i < count; ++i) {
            channel.call(FaultServer::hold, as_bytes("x"), options, outcomes.call());
        }
        while (held() < before + count) {
        }
    }
    std::size_t held() { return std::stoul(ask(FaultServer::held)); }

    // Gets and puts of the whole region, in turn.
    void transfer(std::size_t count, const RegionRef& ref, Outcomes& outcomes) {
        const CallOptions options{.timeout = 2 * test_timeout};
        for (std::size_t i = 0; i < count; ++i) {
            Buffer local = runtime.allocate(ref.length).value();
            if (i % 2 == 0) {
                channel.get(ref, 0, std::move(local), options, outcomes.transfer());
            } else {
                channel.put(ref, 0, std::move(local), options, outcomes.transfer());
            }
        }
    }

    template <class Done>
    bool until(Done&& done, Duration limit = test_timeout) {
        return runtime.turn_until(std::forward<Done>(done), limit);
    }
    // For events that must not happen any more.
    void go_on(Duration time) {
        (void)runtime.turn_until([] { return false; }, time);
    }

    Runtime runtime = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
    Channel channel;
};

// A continuous stream of calls: each call that completes is followed by another one.
class Stream {
  public:
    Stream(FaultClient& client, std::size_t abreast) : client_(client) {
        while (abreast-- > 0) next();
    }
    // Returns when all calls have completed.
    bool stop() {
        stopping_ = true;
        return client_.until([this] { return outcomes.all_ended(); }, 2 * test_timeout);
    }
    Outcomes outcomes;

  private:
    void next() {
        if (stopping_) return;
        client_.channel.call(
            FaultServer::echo, as_bytes("x"), {.timeout = test_timeout},
            [this, ends = outcomes.call()](const Status& status, ByteView reply) mutable {
                ends(status, reply);
                next();
            });
    }

    FaultClient& client_;
    bool stopping_ = false;
};

}  // namespace weft::test
