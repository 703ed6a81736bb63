// Put and get: right bytes at the right place, every bad reference refused, exactly one completion
// each.
#include <algorithm>
#include <vector>

#include "support/na_rma.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::test::wires;

CONFORMANCE("put and get move the right bytes at every size and offset") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    NaPair pair(rig);
    for (const bool arena : {true, false}) {
        if (!arena && !rig.caps().rma_private) continue;
        constexpr std::size_t size = 2 << 20;
        ExposedMemory region(rig, pair.b, size, Access::read_write, arena);
        Buffer local = rig.allocate(size);
        std::vector<std::byte> shadow(region.bytes().begin(), region.bytes().end());
        const std::size_t largest = std::min(size, pair.a->limits().rma_bytes_max);
        for (const std::size_t bytes :
             {std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{4095}, std::size_t{4096},
              std::size_t{4097}, std::size_t{65'537}, largest}) {
            for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, size - bytes}) {
                INFO(bytes << " bytes at " << offset << (arena ? ", arena" : ", private"));
                const Bytes piece = local.bytes().subspan(bytes % 3, bytes - bytes % 3);
                if (piece.empty() || offset > size - piece.size()) continue;
                fill_random(piece, rig.random);
                std::copy(piece.begin(), piece.end(), shadow.begin() + std::ptrdiff_t(offset));
                REQUIRE(run(rig, pair.a, region.put(pair.ab, offset, piece)) == Code::ok);
                REQUIRE(std::ranges::equal(region.bytes(), shadow));
                std::ranges::fill(piece, std::byte{0});
                REQUIRE(run(rig, pair.a, region.get(pair.ab, offset, piece)) == Code::ok);
                REQUIRE(std::equal(piece.begin(), piece.end(),
                                   shadow.begin() + std::ptrdiff_t(offset)));
            }
        }
        region.close();
    }
}

CONFORMANCE("memory outside the arena is exposed or refused with a reason") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    NaNode& node = rig.open();
    std::vector<std::byte> memory(4096);
    Exposure exposure{3, 1, 0x1234, memory, Access::read_write};
    const Result<FabricKey> key = node->expose(exposure);
    CHECK(key.ok() == node->caps().rma_private);
    if (!key.ok()) {
        CHECK(key.status().code() == Code::unimplemented);
        CHECK(key.status().text().find("weft::Buffer") != std::string_view::npos);
        return;
    }
    node.fence(3);
    CHECK(rig.pump_until([&] { return node.fenced.contains(3); }));
}

CONFORMANCE("a transfer with a wrong reference is refused and accesses no memory") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    NaPair pair(rig);
    if (!rig.caps().rma_checked) {
        note_capability(rig.wire.scheme,
                        "references are validated by the owner before the transfer");
        return;
    }
    constexpr std::size_t size = 64 * 1024;
    ExposedMemory both(rig, pair.b, size, Access::read_write);
    ExposedMemory read_only(rig, pair.b, size, Access::read);
    ExposedMemory write_only(rig, pair.b, size, Access::write);
    Buffer local = rig.allocate(8192);
    fill_random(local.bytes(), rig.random);
    const std::vector<std::byte> kept(local.bytes().begin(), local.bytes().end());
    struct Wrong {
        const char* what;
        RmaItem item;
        bool is_one_way = false;  // The other direction is allowed.
    };
    auto put = [&](std::uint64_t offset) { return both.put(pair.ab, offset, local.bytes()); };
    std::vector<Wrong> wrongs{
        {"key", put(0)},
        {"zero key", put(0)},
        {"generation", put(0)},
        {"region of another", put(0)},
        {"region never exposed", put(0)},
        {"region out of any table", put(0)},
        {"one byte over the end", put(size - 8191)},
        {"begins at the end", put(size)},
        {"begins far beyond", put(std::uint64_t{1} << 40)},
        {"offset that overflows", put(~std::uint64_t{0} - 4095)},
        {"put into read only", read_only.put(pair.ab, 0, local.bytes()), true},
        {"get from write only", write_only.get(pair.ab, 0, local.bytes()), true},
    };
    wrongs[0].item.key ^= 1;
    wrongs[1].item.key = 0;
    wrongs[2].item.generation += 1;
    wrongs[3].item.region = read_only.index();
    wrongs[4].item.region = regions_max - 1;
    wrongs[5].item.region = 0xffffffff;
    for (Wrong& wrong : wrongs) {
        for (const RmaKind kind : {RmaKind::put, RmaKind::get}) {
            if (kind != wrong.item.kind && wrong.is_one_way) continue;
            RmaItem item = wrong.item;
            item.kind = kind;
            INFO(wrong.what << (kind == RmaKind::put ? ", put" : ", get"));
            CHECK(run(rig, pair.a, item) == Code::permission_denied);
            CHECK_FALSE(pair.a->error().empty());
            CHECK(std::ranges::equal(local.bytes(), kept));
            REQUIRE(both.is_untouched());
            REQUIRE(read_only.is_untouched());
            REQUIRE(write_only.is_untouched());
        }
    }
    // The connection is still up.
    CHECK(run(rig, pair.a, put(0)) == Code::ok);
    CHECK(pair.a.downs.empty());
    CHECK(pair.b.downs.empty());
}

CONFORMANCE("a transfer of zero bytes or too many is INVALID_ARGUMENT") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    NaPair pair(rig);
    ExposedMemory region(rig, pair.b, 4096, Access::read_write);
    CHECK(run(rig, pair.a, region.put(pair.ab, 0, {})) == Code::invalid_argument);
    CHECK(run(rig, pair.a, region.get(pair.ab, 0, {})) == Code::invalid_argument);
    const std::size_t too_much = pair.a->limits().rma_bytes_max + 1;
    if (too_much < (64u << 20)) {
        Buffer local = rig.allocate(too_much);
        CHECK(run(rig, pair.a, region.put(pair.ab, 0, local.bytes())) == Code::invalid_argument);
    }
    CHECK(region.is_untouched());
}

CONFORMANCE("post accepts items up to the depth, and the rest after an rma_done") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    NaPair pair(rig);
    constexpr std::size_t piece = 512;
    const std::size_t share = pair.a->limits().rma_per_peer_max;
    REQUIRE(share >= 1);
    REQUIRE(share <= pair.a->limits().rma_depth);
    const std::size_t items = share * 3 + 17;
    ExposedMemory region(rig, pair.b, items * piece, Access::read_write);
    Buffer local = rig.allocate(items * piece);
    fill_random(local.bytes(), rig.random);
    for (std::size_t next = 0; next < items;) {
        if (pair.a.rma_under_way.size() < share &&
            pair.a.post(region.put(pair.ab, next * piece,
                                   local.bytes().subspan(next * piece, piece))) != 0) {
            ++next;
        } else {
            REQUIRE_FALSE(pair.a.rma_under_way.empty());
            const std::size_t done = pair.a.rma_done.size();
            REQUIRE(rig.pump_until([&] { return pair.a.rma_done.size() > done; }));
        }
    }
    REQUIRE(rig.pump_until([&] { return pair.a.rma_under_way.empty(); }));
    CHECK(pair.a.rma_done.size() == items);
    CHECK(std::ranges::equal(region.bytes(), local.bytes()));
}

CONFORMANCE("a completed put is visible to the owner before a later message") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    NaPair pair(rig);
    ExposedMemory region(rig, pair.b, 8192, Access::read_write);
    Buffer local = rig.allocate(8192);
    for (int round = 0; round < 30; ++round) {
        fill_random(local.bytes(), rig.random);
        REQUIRE(run(rig, pair.a, region.put(pair.ab, 0, local.bytes())) == Code::ok);
        REQUIRE(std::ranges::equal(region.bytes(), local.bytes()));
    }
}

CONFORMANCE("a reference to a region is valid for every peer, also for later ones") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    NaPair pair(rig);
    ExposedMemory region(rig, pair.b, 4096, Access::read);
    NaNode& late = rig.open({.listens = false});
    const PeerId to_owner = rig.connect(late, pair.b);
    Buffer local = rig.allocate(4096);
    CHECK(run(rig, late, region.get(to_owner, 0, local.bytes())) == Code::ok);
    CHECK(std::ranges::equal(region.bytes(), local.bytes()));
}

CONFORMANCE("each transfer ends exactly once, also when its connection ends") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    enum class End { close_here, close_there, owner_gone };
    for (const End end : {End::close_here, End::close_there, End::owner_gone}) {
        for (int turns = 0; turns < 12; turns += 3) {
            INFO("end " << static_cast<int>(end) << " after " << turns << " turns");
            NaPair pair(rig);
            const std::size_t bytes =
                std::min<std::size_t>(64 << 10, pair.a->limits().rma_bytes_max);
            ExposedMemory region(rig, pair.b, bytes, Access::read_write);
            Buffer local = rig.allocate(bytes);
            std::vector<std::uint64_t> cookies;
            for (int i = 0; i < 8; ++i) {
                const auto item = i % 2 ? region.put(pair.ab, 0, local.bytes())
                                        : region.get(pair.ab, 0, local.bytes());
                if (const std::uint64_t cookie = pair.a.post(item)) cookies.push_back(cookie);
            }
            REQUIRE_FALSE(cookies.empty());
            for (int i = 0; i < turns; ++i) rig.pump();
            if (end == End::close_here) pair.a.close(pair.ab);
            if (end == End::close_there) pair.b.close(pair.ba);
            if (end == End::owner_gone) rig.destroy(pair.b);
            REQUIRE(rig.pump_until([&] { return pair.a.rma_under_way.empty(); }));
            rig.run_until_idle();
            const Code failed = end == End::close_here ? Code::cancelled : Code::unavailable;
            for (const std::uint64_t cookie : cookies) {
                const Code code = pair.a.rma_done.at(cookie);
                // An endpoint that ends in order revokes its regions first.
                const bool revoked = end == End::owner_gone && code == Code::permission_denied;
                CHECK((code == Code::ok || code == failed || revoked));
            }
            CHECK(pair.a.downs.size() == (end == End::close_here ? 0 : 1));
        }
    }
}

CONFORMANCE("a process that stalls during its first transfer does not lose it") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    for (const bool by_connector : {true, false}) {
        for (int looks = 0; looks < 6; ++looks) {
            INFO("after " << looks << " looks");
            NaPair pair(rig);
            NaNode& initiator = by_connector ? pair.a : pair.b;
            NaNode& owner = by_connector ? pair.b : pair.a;
            ExposedMemory region(rig, owner, 4096, Access::read_write);
            Buffer local = rig.allocate(4096);
            const PeerId to = by_connector ? pair.ab : pair.ba;
            const std::uint64_t cookie = initiator.post(region.get(to, 0, local.bytes()));
            REQUIRE(cookie != 0);
            initiator->flush();
            for (int i = 0; i < looks; ++i) {
                initiator.poll();
                owner.poll();
            }
            rig.skip(2700ms);
            REQUIRE(rig.pump_until([&] { return initiator.rma_done.contains(cookie); }));
            CHECK(initiator.rma_done[cookie] == Code::ok);
            region.close();
            rig.destroy(pair.a);
            rig.destroy(pair.b);
        }
    }
}
