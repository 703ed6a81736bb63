// The service of tests/protos/echo.proto, and a pair of simulated runtimes around it.
#pragma once

#include <stdexcept>
#include <string>

#include <weft/await.h>
#include <weft/offload.h>

#include "base/manual_clock.h"
#include "echo.weft.h"
#include "support/catch.h"
#include "support/sim_rig.h"

namespace weft::test {

// Echoes, unless the request's text is one of the commands below.
struct EchoServer : echo::v1::EchoService {
    using Request = echo::v1::EchoRequest;
    using Reply = echo::v1::EchoReply;

    Status Now(Call&, const Request& in, Reply& out) override { return act(in, out); }

    Status Everywhere(Call&, const echo::v1::EchoRequestText& in, Reply& out) override {
        ++handled;
        if (in.text() == "fail") return fail(Code::not_found, "nothing here");
        out.set_text(in.text());
        return {};
    }

    // Passes through the offload pool's queue, so that it is suspended once.
    Task<Status> Later(Call& call, const Request& in, Reply& out) override {
        const auto nothing = [] {};
        co_await offload(nothing);
        was_cancelled = call.cancelled();
        co_return act(in, out);
    }

    Task<Status> Hasty(Call& call, const Request&, Reply&) override {
        remaining = call.deadline() - asked_at->now();
        co_return Status();
    }

    Task<Status> Held(Call& call, const Request&, Reply&) override {
        ++waiting;
        while (!call.cancelled()) {
            Noticed noticed(call);
            co_await noticed;
        }
        --waiting;
        was_cancelled = true;
        co_return fail(Code::cancelled, "as the client wished");
    }

    Task<Status> Pull(Call& call, const Request& in, Reply& out) override {
        Result<RegionRef> source = from_proto(in.source());
        if (!source) co_return rejected(source.status());
        if (source->length > memory.size()) co_return rejected(Code::out_of_range, "too much");
        const Buffer into = memory.slice(0, source->length);
        if (Status status = co_await get(call, *source, 0, into); !status.ok()) co_return status;
        out.set_text(std::string(as_text(into.bytes())));
        co_return Status();
    }

    // Resumes when the call is cancelled.
    struct Noticed {
        explicit Noticed(Call& noticing) : call(noticing) {}
        bool await_ready() const { return call.cancelled(); }
        void await_suspend(std::coroutine_handle<> awaiting) {
            call.on_cancel([awaiting] { awaiting.resume(); });
        }
        void await_resume() const {}
        Call& call;
    };

    Status act(const Request& in, Reply& out) {
        ++handled;
        if (in.text() == "fail") return fail(Code::not_found, "nothing here");
        if (in.text() == "reject") return rejected(Code::out_of_range, "too far");
        if (in.text() == "unsure") {
            return fail(Code::unavailable, "nested").with_effect(Effect::unknown);
        }
        if (in.text() == "throw") throw std::runtime_error("secret");
        if (in.text() == "large") return out.set_text(std::string(1 << 20, 'x')), Status();
        out.set_text(in.text());
        *out.mutable_numbers() = in.numbers();
        if (in.has_source()) *out.mutable_source() = in.source();
        return {};
    }

    std::uint64_t handled = 0;
    int waiting = 0;
    bool was_cancelled = false;
    Buffer memory;
    Duration remaining{};
    base::ManualClock* asked_at = nullptr;
};

inline echo::v1::EchoRequest request_of(std::string text) {
    echo::v1::EchoRequest request;
    request.set_text(std::move(text));
    return request;
}

struct EchoPair {
    EchoServer service;  // The service outlives the runtime that serves it.
    SimRig rig;
    Runtime& server;
    Runtime& client;
    Channel channel;
    explicit EchoPair(const RuntimeOptions& options = {})
        : server(rig.add("server", options)), client(rig.add("", options)) {
        service.asked_at = rig.clock.get();
        REQUIRE(server.add(service).ok());
        channel = client.connect("sim://server").value();
    }
    echo::v1::EchoClient stub() const { return echo::v1::EchoClient(channel); }

    // Runs `task` on the client's context to its end.
    template <class T>
    T run(Task<T> task) {
        std::optional<T> result;
        client.spawn(keep(std::move(task), result));
        REQUIRE(rig.run_until([&] { return result.has_value(); }));
        return *std::move(result);
    }

  private:
    template <class T>
    static Task<void> keep(Task<T> task, std::optional<T>& into) {
        into.emplace(co_await task);
    }
};

}  // namespace weft::test
