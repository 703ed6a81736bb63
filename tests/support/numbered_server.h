// A server with several contexts, each with a service that knows its number.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include <weft/await.h>
#include <weft/runtime.h>

#include "support/catch.h"
#include "support/contexts.h"

namespace weft::test {

inline constexpr MethodId number_method(
    "test.Contexts/Number");  // Replies with the number of its context.
inline constexpr MethodId hold_method("test.Contexts/Hold");  // Held until it is cancelled.

struct NumberedService final : Service {
    explicit NumberedService(unsigned k) : index(k) {}
    ~NumberedService() override { destroyed_on = std::this_thread::get_id(); }
    void register_methods(MethodRegistrar& registrar) override {
        made_on = std::this_thread::get_id();
        registrar.add(number_method, [this](Call call) {
            if (std::this_thread::get_id() != made_on) is_on_own_thread = false;
            ++handled;
            const std::string text = std::to_string(index);
            call.reply(as_bytes(text));
        });
        registrar.add(hold_method, [this](Call call) {
            held.push_back(std::move(call));
            ++begun;
            Call& kept = held.back();
            kept.on_cancel([this] { ++cancelled; });
        });
    }
    const unsigned index;
    std::thread::id made_on;
    static inline std::thread::id destroyed_on;
    static inline std::atomic<bool> is_on_own_thread{true};
    static inline std::atomic<int> handled{0};
    static inline std::atomic<int> begun{0};  // Held calls.
    static inline std::atomic<int> cancelled{0};
    std::list<Call> held;
};

inline ServiceFactory numbered_services() {
    return [](const Here& here) { return std::make_unique<NumberedService>(here.index); };
}

struct NumberedServer {
    Runtime runtime;
    explicit NumberedServer(unsigned contexts, const std::string& uri)
        : runtime(Runtime::create(with_contexts(contexts)).value()) {
        const Status served = runtime.serve(numbered_services(), uri);
        INFO(served.to_string());
        REQUIRE(served.ok());
    }
    std::string address() const { return runtime.addresses().front(); }
};

inline Task<Result<std::vector<std::byte>>> ask_number(Channel channel) {
    co_return co_await call(channel, number_method, {});
}

// The context that answers.
inline unsigned ask_context(Runtime& client, const Channel& channel) {
    const auto reply = client.block_on(ask_number(channel));
    INFO(reply.status().to_string());
    REQUIRE(reply);
    return static_cast<unsigned>(std::stoul(std::string(as_text(*reply))));
}

}  // namespace weft::test
