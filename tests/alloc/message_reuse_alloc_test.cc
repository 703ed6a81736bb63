// "Bounds before allocation" for messages kept for reuse, counted: a message is freed when it holds
// too much, wherever its uses have put the memory.
#include <memory>

#include <weft/protobuf.h>
#include <weft/protobuf_merge.h>

#include "alloc/counting_new.h"
#include "sizes.weft.h"
#include "support/catch.h"
#include "support/message_bytes.h"
#include "support/sim_rig.h"

using namespace weft;
using sizes::v1::Many;
using test::allocations;
using test::allocations_count;
using test::in;
using test::live_bytes;
using test::number_of;
using test::repeat;
using test::tag;

namespace {

constexpr std::int64_t kib = 1024;

const ProtoMethod<Many, Many> echo_now{.id = MethodId("reuse.Reuse/Now")};
const ProtoMethod<Many, Many> echo_later{.id = MethodId("reuse.Reuse/Later")};
const MethodId raw("reuse.Reuse/Raw");

struct ReuseServer final : Service {
    Status Now(Call&, const Many& request, Many& reply) {
        reply = request;
        return request.number() == 0 ? Status() : fail(Code::not_found, "half-way");
    }
    Task<Status> Later(Call& call, const Many& request, Many& reply) {
        co_return Now(call, request, reply);
    }
    void register_methods(MethodRegistrar& registrar) override {
        serve<&ReuseServer::Now>(registrar, *this, echo_now);
        serve<&ReuseServer::Later>(registrar, *this, echo_later);
        registrar.add(raw, [](Call call) { call.reply(call.request()); });
    }
};

struct ReuseRig {
    ReuseServer service;
    test::SimRig rig;
    Channel channel;
    int completed = 0;
    ReuseRig() {
        REQUIRE(rig.add("server").add(service).ok());
        channel = rig.add("").connect("sim://server").value();
    }
    template <class Start>
    void complete(Start start) {
        const int before = completed;
        start();
        REQUIRE(rig.run_until([&] { return completed > before; }));
    }
    void echo(const ProtoMethod<Many, Many>& method, const std::string& body) {
        Many request;
        REQUIRE(request.ParseFromString(body));
        echo(method, request);
    }
    void echo(const ProtoMethod<Many, Many>& method, const Many& request) {
        complete([&] {
            weft::call(channel, method, request, {},
                       [&](const Status&, const Many&) { ++completed; });
        });
    }
    void echo_raw(const std::string& body) {
        complete([&] {
            channel.call(raw, as_bytes(body), {}, [&](const Status&, ByteView) { ++completed; });
        });
    }
};

struct Leaf {
    const char* name;
    std::string body;  // A body of a Wide.
};

// The contents that a small body can put into a nested message.
std::vector<Leaf> leaves() {
    std::string pairs;
    for (int key = 0; key < 60; ++key) pairs += in(7, in(1, std::to_string(key)));
    return {
        {"texts", repeat(in(6, ""), 400)},
        {"a text", in(1, std::string(400, 'x'))},
        {"a list", in(5, std::string(400, 'x'))},
        {"pairs of a map", pairs},
        {"unknown numbers", repeat(tag(90, 0) + '\1', 400)},
    };
}

// In each `round` at another place: one of 300 Wides in one of 8 Manys.
std::string elsewhere(int round, const std::string& leaf) {
    std::string wides = repeat(in(6, ""), 2 * static_cast<std::size_t>(round % 300));
    std::string many = wides + in(6, leaf);
    for (int depth = round / 300 % 8; depth > 0; --depth) many = in(4, many);
    return many;
}

}  // namespace

TEST_CASE("a reused message keeps memory within its limit for every layout of small bodies") {
    for (const auto* method : {&echo_now, &echo_later}) {
        for (const Leaf& leaf : leaves()) {
            ReuseRig rig;
            rig.echo(*method, elsewhere(0, leaf.body));
            const std::int64_t before = live_bytes();
            std::int64_t most = 0;
            for (int round = 0; round < 2400; ++round) {
                rig.echo(*method, elsewhere(round, leaf.body));
                most = std::max(most, live_bytes() - before);
            }
            INFO(leaf.name << ": " << most << " bytes");
            // A request and two replies, of 256 KiB at most; twice, for the overhead of the heap.
            CHECK(most < 2 * 3 * 256 * kib);
        }
    }
}

TEST_CASE("a reused message keeps memory within its limit when handlers fail") {
    ReuseRig rig;
    const std::int64_t before = live_bytes();
    for (int round = 0; round < 2400; ++round) {
        rig.echo(echo_now, tag(1, 0) + '\1' + elsewhere(round, repeat(in(6, ""), 400)));
    }
    CHECK(live_bytes() - before < 2 * 2 * 256 * kib);
}

TEST_CASE("a reused message releases the memory of a small body that expands when parsed") {
    ReuseRig rig;
    rig.echo(echo_now, "");
    const std::int64_t before = live_bytes();
    rig.echo(echo_now, repeat(in(6, ""), 4096));
    CHECK(live_bytes() - before < 128 * kib);
}

TEST_CASE("a reused message with submessages allocates nothing for calls of the same shape") {
    ReuseRig rig;
    const std::string body = in(2, std::string(40, 'x')) + repeat(in(5, ""), 6) +
                             in(6, in(1, std::string(40, 'x'))) + in(7, std::string(40, 'x')) +
                             in(4, in(9, std::string(8, '\1')));
    Many request;
    REQUIRE(request.ParseFromString(body));
    const auto count = [&](auto start) {
        for (int i = 0; i < 100; ++i) start();
        const std::uint64_t before = allocations();
        for (int i = 0; i < 2000; ++i) start();
        return allocations() - before;
    };
    const std::uint64_t in_bytes = count([&] { rig.echo_raw(body); });
    CHECK(count([&] { rig.echo(echo_now, request); }) == in_bytes);
}

TEST_CASE("merged replies keep memory within their limit, whatever their fields") {
    const auto fields = [](Many& into, Many& from) {
        into.mutable_one()->Swap(from.mutable_one());
        return Status();
    };
    const std::int64_t before = live_bytes();
    std::int64_t most = 0;
    for (const Leaf& leaf : leaves()) {
        for (int round = 0; round < 2400; ++round) {
            std::vector<std::byte> into;
            const std::string from = in(4, elsewhere(round, leaf.body));
            REQUIRE(merging::replies<Many>(into, as_bytes(from), fields).ok());
            most = std::max(most, live_bytes() - before);
        }
    }
    CHECK(most < 2 * 2 * 256 * kib);
}
