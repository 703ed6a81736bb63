// Who calls a FaultServer, in one thread, which the test turns.
#pragma once

#include <string>
#include <vector>

#include <weft/runtime.h>

#include "support/catch.h"
#include "support/fault_server.h"
#include "support/outcomes.h"
#include "support/patience.h"

namespace weft::test {

class FaultClient {
  public:
    explicit FaultClient(const std::string& uri) : channel(runtime.connect(uri).value()) {}

    // One call and its answer, which has to be good.
    std::string ask(const MethodId& method) {
        bool done = false;
        std::string answer;
        Status outcome;
        channel.call(method, {}, {.timeout = patience}, [&](const Status& status, ByteView reply) {
            outcome = status;
            answer = as_text(reply);
            done = true;
        });
        REQUIRE(runtime.turn_until([&] { return done; }, 2 * patience));
        INFO(outcome.to_string());
        REQUIRE(outcome.ok());
        return answer;
    }
    RegionRef ref(const MethodId& method) {
        return RegionRef::decode(as_bytes(ask(method))).value();
    }

    // Calls that stay in their handlers until something happens to them; when they are all there.
    void hold(std::size_t count, Outcomes& outcomes, CallOptions options = {}) {
        options.timeout = 2 * patience;
        const std::size_t before = held();
        for (std::size_t i = 0; i < count; ++i) {
            channel.call(FaultServer::hold, as_bytes("x"), options, outcomes.call());
        }
        while (held() < before + count) {
        }
    }
    std::size_t held() { return std::stoul(ask(FaultServer::held)); }

    // Gets and puts of the whole of it, in turn.
    void transfer(std::size_t count, const RegionRef& ref, Outcomes& outcomes) {
        const CallOptions options{.timeout = 2 * patience};
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
    bool until(Done&& done, Duration limit = patience) {
        return runtime.turn_until(std::forward<Done>(done), limit);
    }
    // For what must not happen any more.
    void go_on(Duration time) {
        (void)runtime.turn_until([] { return false; }, time);
    }

    Runtime runtime = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
    Channel channel;
};

// Calls that go on, whatever else does: each one that ends is followed by another one.
class Stream {
  public:
    Stream(FaultClient& client, std::size_t abreast) : client_(client) {
        while (abreast-- > 0) next();
    }
    // Until all have ended.
    bool stop() {
        stopping_ = true;
        return client_.until([this] { return outcomes.all_ended(); }, 2 * patience);
    }
    Outcomes outcomes;

  private:
    void next() {
        if (stopping_) return;
        client_.channel.call(
            FaultServer::echo, as_bytes("x"), {.timeout = patience},
            [this, ends = outcomes.call()](const Status& status, ByteView reply) mutable {
                ends(status, reply);
                next();
            });
    }

    FaultClient& client_;
    bool stopping_ = false;
};

}  // namespace weft::test
