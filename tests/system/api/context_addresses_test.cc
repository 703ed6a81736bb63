// Contexts of a server with several addresses, of which some reach context 0 only (ofi).
#include <algorithm>
#include <optional>

#include <weft/await.h>

#include "api/runtime_impl.h"
#include "rpc/channel_impl.h"
#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/usable.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr unsigned listed_contexts = 4;

struct ListedServer {
    Runtime runtime = Runtime::create(with_contexts(listed_contexts)).value();
    explicit ListedServer(std::vector<std::string> uris) {
        const Status served = runtime.serve(numbered_services(), Addresses(std::move(uris)));
        INFO(served.to_string());
        REQUIRE(served.ok());
    }
    std::string address(const std::string& scheme) const {
        const std::vector<std::string> all = runtime.addresses();
        return *std::ranges::find_if(
            all, [&](const std::string& uri) { return uri.starts_with(scheme + "://"); });
    }
};

std::uint32_t connections_of(Runtime& runtime) {
    std::uint32_t all = 0;
    for (const auto& node : api::RuntimeImpl::of(runtime).nodes) all += node->context.connections();
    return all;
}

Task<void> cut_connection(Runtime& client, Channel channel) {
    core::Peer* const peer = core::Context::find(rpc::ChannelImpl::of(channel)->peer());
    node_of(client).context.drop_connection(*peer, fail(Code::unavailable, "cut by the test"));
    co_return;
}

}  // namespace

TEST_CASE("context addresses: one of context 0 shows that a local one is the same server's") {
    if (!is_in_this_build("ofi+tcp://")) return;
    for (const char* const scheme : {"sm", "unix"}) {
        CAPTURE(scheme);
        ListedServer server({fresh_uri(scheme), "ofi+tcp://127.0.0.1:0"});
        Runtime client = Runtime::create(with_contexts(1)).value();
        const Channel channel = client.connect(server.runtime.addresses()).value();
        for (unsigned k = 0; k < listed_contexts; ++k)
            CHECK(ask_context(client, channel.on(k)) == k);
        CHECK(channel.contexts() == listed_contexts);
        for (std::uint64_t hash = 0; hash < 20; ++hash)
            CHECK(ask_context(client, channel.by(hash)) == place(hash, listed_contexts));
        // The address of context 0 does not hide how many there are.
        const auto none = client.block_on(ask_number(channel.on(9)));
        CHECK(none.status().code() == Code::out_of_range);
        CHECK(none.status().effect() == Effect::none);
        CHECK(channel.contexts() == listed_contexts);
    }
}

TEST_CASE("context addresses: a session returns to its context, whichever the witness is of") {
    if (!is_in_this_build("ofi+tcp://")) return;
    NumberedService::begun = 0;
    NumberedService::cancelled = 0;
    ListedServer server({fresh_uri("sm"), "ofi+tcp://127.0.0.1:0"});
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel pinned = client.connect(server.runtime.addresses()).value().on(2);
    REQUIRE(ask_context(client, pinned) == 2);
    std::optional<Code> ended;
    OperationId held;
    const auto hold = [&]() -> Task<bool> {
        held = pinned.call(hold_method, {}, {},
                           [&](const Status& status, ByteView) { ended = status.code(); });
        const auto has_begun = [] { return NumberedService::begun == 1; };
        co_return co_await until(has_begun);
    };
    REQUIRE(client.block_on(hold()));
    client.block_on(cut_connection(client, pinned));
    CHECK(ask_context(client, pinned) == 2);
    const auto cancel = [&]() -> Task<bool> {
        if (ended) co_return false;  // With its connection.
        pinned.cancel_call(held);
        const auto has_ended = [&] { return ended.has_value(); };
        co_return co_await until(has_ended);
    };
    CHECK(client.block_on(cancel()));
    CHECK(ended == Code::cancelled);
    CHECK(wait_for([] { return NumberedService::cancelled == 1; }));
}

TEST_CASE("context addresses: the one that is used must reach the context") {
    if (!is_in_this_build("ofi+tcp://")) return;
    NumberedServer other(2, fresh_uri("sm"));
    ListedServer server({"tcp://127.0.0.1:0", "ofi+tcp://127.0.0.1:0"});
    Runtime client = Runtime::create(with_contexts(1)).value();
    // Nothing listens at the local address, or another server.
    for (const std::string& local : {fresh_uri("sm"), other.address()}) {
        CAPTURE(local);
        const Channel by_tcp = client.connect({local, server.address("tcp")}).value();
        for (unsigned k = 0; k < listed_contexts; ++k)
            CHECK(ask_context(client, by_tcp.on(k)) == k);
        CHECK(by_tcp.contexts() == listed_contexts);
        const Channel by_ofi = client.connect({local, server.address("ofi+tcp")}).value();
        const auto refused = client.block_on(ask_number(by_ofi.on(1)));
        CHECK(refused.status().code() == Code::out_of_range);
        CHECK(refused.status().effect() == Effect::none);
        const std::string text(refused.status().text());
        CAPTURE(text);
        CHECK(text.find("this address reaches context 0 of the server, and not 1") != text.npos);
        CHECK(by_ofi.contexts() == 1);
        CHECK(ask_context(client, by_ofi.by(5)) == 0);
        CHECK(ask_context(client, by_ofi.on(0)) == 0);
    }
    CHECK(wait_for([&] { return connections_of(other.runtime) == 0; }));
}
