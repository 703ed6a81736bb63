// The orderly end of runtimes with several contexts.
#include <atomic>
#include <optional>

#include "api/runtime_impl.h"
#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/test_timeout.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace {

RuntimeOptions draining_contexts() {
    RuntimeOptions options = with_contexts(3);
    options.drain_timeout = test_timeout;
    return options;
}

// Holds the calls of one method, on the context that it is of.
struct DrainedService final : Service {
    explicit DrainedService(std::optional<Call>& in) : held(in) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(number_method, [](Call call) { call.reply({}); });
        registrar.add(hold_method, [this](Call call) { held = std::move(call); });
    }
    std::optional<Call>& held;
};

}  // namespace

TEST_CASE("contexts: none announces the end of a server while another one has a handler") {
    const std::string scheme = GENERATE(from_range(steering));
    const unsigned busy = GENERATE(0u, 1u, 2u);
    CAPTURE(scheme, busy);
    std::optional<Call> held;  // Of the busy context.
    Runtime server = Runtime::create(draining_contexts()).value();
    const auto make = [&](const Here&) { return std::make_unique<DrainedService>(held); };
    REQUIRE(server.serve(make, fresh_uri(scheme)).ok());
    api::RuntimeImpl& impl = impl_of(server);
    const auto on_busy = [&](Function<void()> work) {
        impl.nodes[busy]->on_context(std::move(work));
    };
    const auto ended = [&] {
        std::size_t count = 0;
        for (const auto& one : impl.nodes)
            one->on_context([&] { count += one->server.has_ended_sessions(); });
        return count;
    };
    std::atomic<int> completed{0};
    Status status;
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel = client.connect(server.addresses().front()).value();
    for (unsigned k = 0; k < 3; ++k) REQUIRE(client.block_on(ask_number(channel.on(k))));
    channel.on(busy).call(hold_method, {}, {.timeout = test_timeout},
                          [&](const Status& outcome, ByteView) {
                              status = outcome;
                              ++completed;
                          });
    REQUIRE(wait_for([&] {
        bool is_held = false;
        on_busy([&] { is_held = held.has_value(); });
        return is_held;
    }));
    // Asked once between two rounds of the drain.
    int rounds = 0;
    std::size_t ended_early = 0;
    const Status drained = impl.drain([&](Duration longest) {
        if (longest == Duration::zero() || ++rounds != 20) return false;
        ended_early = ended();
        on_busy([&] {
            held->reply({});
            held.reset();
        });
        return false;
    });
    INFO(drained.to_string());
    CHECK(drained.ok());
    CHECK(rounds >= 20);
    CHECK(ended_early == 0);
    CHECK(ended() == 3);
    CHECK(wait_for([&] { return completed == 1; }));
    CHECK(status.ok());
}

namespace {

struct LastRanks final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(hold_method,
                      [this](Call call) {
                          if (!holds) return call.reply({});
                          held.push_back(std::move(call));
                      },
                      {.collective = true});
        registrar.add(number_method, [this](Call call) {
            ++begun;
            call.reply({});
        });
    }
    bool holds = false;
    std::vector<Call> held;
    std::atomic<int> begun{0};
};

}  // namespace

TEST_CASE("contexts: none begins a handler while the end of its runtime delivers a collective") {
    RuntimeOptions manual = draining_contexts();
    manual.manual = true;
    LastRanks first, second;
    second.holds = true;
    Runtime other = Runtime::create(with_contexts(1)).value();
    REQUIRE(other.serve(second, fresh_uri("unix")).ok());
    std::optional<Runtime> server(Runtime::create(manual).value());
    REQUIRE(server->serve(shared(first), fresh_uri("unix")).ok());
    const std::vector<Member> members{{0, server->addresses()}, {1, other.addresses()}};
    const GroupView view = GroupView::make("last", 1, members).value();
    REQUIRE(server->join(view, 0).ok());
    REQUIRE(other.join(view, 1).ok());
    // Rank 0 alone is waited for.
    bool is_complete = false;
    const GroupCallOptions one{.timeout = test_timeout, .policy = Policy::quorum, .quorum = 1};
    server->group(view).value().collective(hold_method, BodyWriter::of({}), one,
                                           [&](const GroupOutcome&) { is_complete = true; });
    REQUIRE(server->turn_until([&] { return is_complete; }, test_timeout));
    std::atomic<unsigned> completed{0};
    std::atomic<int> refused{0}, left{2};
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel = client.connect(server->addresses().front()).value();
    for (const unsigned context : {1u, 2u}) {
        channel.on(context).call(number_method, {}, {.timeout = test_timeout},
                                 [&](const Status&, ByteView) { ++completed; });
        REQUIRE(server->turn_until([&] { return completed == context; }, test_timeout));
    }
    REQUIRE(impl_of(*server).collectives.delivering() == 1);
    first.begun = 0;
    // No thread turns the server before its end.
    for (const unsigned context : {1u, 2u}) {
        channel.on(context).call(
            number_method, {}, {.timeout = test_timeout}, [&](const Status& status, ByteView) {
                refused += status.code() == Code::unavailable && status.effect() == Effect::none;
                if (--left != 0) return;
                // The collective is delivered: the end continues.
                other.executor().post([&] {
                    for (Call& call : second.held) call.reply({});
                    second.held.clear();
                });
            });
    }
    server.reset();
    CHECK(wait_for([&] { return left == 0; }));
    CHECK(refused == 2);
    CHECK(first.begun == 0);
}

TEST_CASE("contexts: an end that cancels a handler of one announces no end on the others") {
    RuntimeOptions manual = draining_contexts();
    manual.manual = true;
    const bool is_busy = GENERATE(false, true);
    CAPTURE(is_busy);
    std::optional<Call> held;
    std::optional<Runtime> server(Runtime::create(manual).value());
    const auto make = [&](const Here&) { return std::make_unique<DrainedService>(held); };
    REQUIRE(server->serve(make, fresh_uri("unix")).ok());
    std::atomic<unsigned> completed{0};
    std::atomic<bool> is_over{false};
    Status status;
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel = client.connect(server->addresses().front()).value();
    const auto count = [&](const Status&, ByteView) { ++completed; };
    for (const unsigned context : {0u, 1u}) {
        channel.on(context).call(number_method, {}, {.timeout = test_timeout}, count);
        REQUIRE(server->turn_until([&] { return completed == context + 1; }, test_timeout));
    }
    if (is_busy) {
        channel.on(1).call(hold_method, {}, {.timeout = test_timeout}, count);
        REQUIRE(server->turn_until([&] { return held.has_value(); }, test_timeout));
    }
    // Too large to be kept for the next server. No thread turns this one before its end.
    const std::vector<std::byte> body(1000);
    channel.on(0).call(number_method, body, {.timeout = test_timeout},
                       [&](const Status& outcome, ByteView) {
                           status = outcome;
                           is_over = true;
                       });
    node_of(client).on_context([] {});  // Sent.
    server.reset();
    held.reset();
    CHECK(wait_for([&] { return is_over.load(); }));
    INFO(status.to_string());
    CHECK(status.code() == Code::unavailable);
    CHECK(status.effect() == (is_busy ? Effect::unknown : Effect::none));
}
