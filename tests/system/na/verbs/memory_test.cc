// Memory and transfers over verbs when the device fails.
#include <sys/resource.h>

#include "support/na_rma.h"
#include "support/verbs_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;

static constexpr std::size_t region_bytes = 64 * 1024;

TEST_CASE("verbs memory: a failed expose names the remedy, and succeeds later") {
    VerbsRig rig;
    NaPair pair(*rig);
    Buffer memory = rig->allocate(region_bytes);
    Exposure exposure;
    exposure.region = 3;
    exposure.generation = 1;
    exposure.key = 5;
    exposure.memory = memory.bytes();
    exposure.access = Access::read;
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before) == 0);
    rlimit little = before;
    little.rlim_cur = 65536;
    REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &little) == 0);
    rig.fake.fail_registration(ENOMEM);
    const auto refused = pair.b->expose(exposure);
    REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &before) == 0);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.status().code() == Code::resource_exhausted);
    const std::string why(refused.status().text());
    says(why, "65536 bytes");
    says(why, "ulimit -l unlimited");
    says(why, "LimitMEMLOCK=infinity");
    CHECK(pair.b->expose(exposure).ok());
    CHECK(rig.is_alive(pair));
}

TEST_CASE("verbs memory: a transfer fails alone when its local memory can't be registered") {
    VerbsRig rig;
    NaPair pair(*rig);
    ExposedMemory memory(*rig, pair.b, region_bytes, Access::read_write);
    std::vector<std::byte> local(4096);  // Outside of the arena.
    REQUIRE(run(*rig, pair.a, memory.get(pair.ab, 0, local)) == Code::ok);
    std::vector<std::byte> other(4096);
    rig.fake.fail_registration(ENOMEM);
    CHECK(run(*rig, pair.a, memory.get(pair.ab, 0, other)) == Code::resource_exhausted);
    says(pair.a->error(), "can't register 4096 bytes");
    CHECK(run(*rig, pair.a, memory.get(pair.ab, 0, other)) == Code::ok);
    CHECK(rig.is_alive(pair));
}

TEST_CASE("verbs memory: no region_fenced while the device fails to deregister a region") {
    VerbsRig rig;
    NaPair pair(*rig);
    ExposedMemory memory(*rig, pair.b, region_bytes, Access::read);
    rig.fake.fail_deregistrations(EBUSY);
    pair.b.fence(memory.index());
    rig->run_until_idle();
    CHECK_FALSE(pair.b.fenced.contains(memory.index()));
    // The region can still be read.
    std::vector<std::byte> local(64);
    CHECK(run(*rig, pair.a, memory.get(pair.ab, 0, local)) == Code::ok);
    pair.b.fencing.clear();
    CHECK(rig.is_alive(pair));
}

// Posts one invalid transfer among valid ones; messages continue over the same connection.
static void refuse_one(const std::function<RmaItem(ExposedMemory&, PeerId, Bytes)>& make_bad) {
    VerbsRig rig;
    NaPair pair(*rig);
    ExposedMemory memory(*rig, pair.b, region_bytes, Access::read);
    std::vector<std::vector<std::byte>> locals(9, std::vector<std::byte>(512));
    std::vector<std::uint64_t> cookies;
    for (std::size_t i = 0; i < locals.size(); ++i) {
        RmaItem item = memory.get(pair.ab, i * 512, locals[i]);
        if (i == 4) item = make_bad(memory, pair.ab, locals[i]);
        cookies.push_back(pair.a.post(item));
        REQUIRE(cookies.back() != 0);
        REQUIRE(pair.a.send(pair.ab, 64));
    }
    REQUIRE(rig->pump_until([&] { return pair.a.rma_done.size() == locals.size(); }));
    for (std::size_t i = 0; i < locals.size(); ++i) {
        INFO(i);
        CHECK(pair.a.rma_done[cookies[i]] == (i == 4 ? Code::permission_denied : Code::ok));
        const auto there = memory.bytes().subspan(i * 512, 512);
        CHECK(std::ranges::equal(locals[i], there) == (i != 4));
    }
    CHECK(memory.is_untouched());
    CHECK(rig->pump_until([&] { return pair.b.at(pair.ba).received == locals.size(); }));
    CHECK(pair.a.downs.empty());
    CHECK(pair.b.downs.empty());
    CHECK(rig.is_alive(pair));
}

TEST_CASE("verbs memory: a refused access fails its own transfer and nothing else") {
    refuse_one([](ExposedMemory& memory, PeerId peer, Bytes local) {
        RmaItem item = memory.get(peer, 0, local);
        item.fabric.key ^= 0x5a5a;  // A key of no region.
        return item;
    });
    refuse_one([](ExposedMemory& memory, PeerId peer, Bytes local) {
        return memory.get(peer, region_bytes - 1, local);
    });
    refuse_one([](ExposedMemory& memory, PeerId peer, Bytes local) {
        return memory.put(peer, 0, local);  // The region is read-only.
    });
}

TEST_CASE("verbs memory: a reference revoked during a link failure is refused, also later") {
    VerbsRig rig;
    NaPair pair(*rig);
    ExposedMemory kept(*rig, pair.b, region_bytes, Access::read_write);
    ExposedMemory revoked(*rig, pair.b, region_bytes, Access::read_write);
    std::vector<std::byte> local(1024, std::byte{0x77});
    REQUIRE(run(*rig, pair.a, revoked.get(pair.ab, 0, local)) == Code::ok);
    rig.fake.cut();
    const std::uint64_t first = pair.a.post(kept.get(pair.ab, 0, local));
    const std::uint64_t bad = pair.a.post(revoked.put(pair.ab, 0, local));
    const std::uint64_t last = pair.a.post(kept.get(pair.ab, 0, local));
    REQUIRE((first != 0 && bad != 0 && last != 0));
    revoked.close();
    rig.fake.restore();
    REQUIRE(rig->pump_until([&] { return pair.a.rma_done.size() == 4; }));
    CHECK(pair.a.rma_done[first] == Code::ok);
    CHECK(pair.a.rma_done[bad] == Code::permission_denied);
    CHECK(pair.a.rma_done[last] == Code::ok);
    CHECK(run(*rig, pair.a, revoked.get(pair.ab, 0, local)) == Code::permission_denied);
    CHECK(revoked.is_untouched());
    CHECK(rig.is_alive(pair));
}

TEST_CASE("verbs memory: each kind of refusal by the owner's device is PERMISSION_DENIED") {
    for (const ibv_wc_status status :
         {IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR}) {
        VerbsRig rig;
        NaPair pair(*rig);
        ExposedMemory memory(*rig, pair.b, region_bytes, Access::read);
        std::vector<std::byte> local(64);
        rig.fake.end_next_work(FakeLane::transfers, status, 0);
        CHECK(run(*rig, pair.a, memory.get(pair.ab, 0, local)) == Code::permission_denied);
        says(pair.a->error(), "refused the access");
        CHECK(run(*rig, pair.a, memory.get(pair.ab, 0, local)) == Code::ok);
        CHECK(rig.is_alive(pair));
    }
}

TEST_CASE("verbs memory: a transfer queue pair that breaks ends the connection") {
    for (const ibv_wc_status status : {IBV_WC_RETRY_EXC_ERR, IBV_WC_FATAL_ERR}) {
        VerbsRig rig;
        NaPair pair(*rig);
        ExposedMemory memory(*rig, pair.b, region_bytes, Access::read);
        std::vector<std::byte> local(64);
        rig.fake.end_next_work(FakeLane::transfers, status, 0);
        CHECK(run(*rig, pair.a, memory.get(pair.ab, 0, local)) == Code::unavailable);
        const Down down = rig.wait_for_down(pair.a);
        CHECK(down.code == Code::unavailable);
        says(down.error, "the connection broke");
    }
}

TEST_CASE("verbs memory: a lack of queue pairs at either end fails the transfers only") {
    VerbsRig rig;
    NaPair pair(*rig);
    ExposedMemory memory(*rig, pair.b, region_bytes, Access::read);
    std::vector<std::byte> local(64);
    const int used = rig.fake.counts().pairs;
    for (int more = 0; more < 2; ++more) {
        rig.fake.set_limits({.pairs_max = used + more});
        CHECK(run(*rig, pair.a, memory.get(pair.ab, 0, local)) == Code::unavailable);
        CHECK(rig.fake.counts().pairs == used);
        CHECK(rig.is_alive(pair));
    }
    rig.fake.set_limits({});
    CHECK(run(*rig, pair.a, memory.get(pair.ab, 0, local)) == Code::ok);
}

TEST_CASE("verbs memory: transfers that the device refuses to post end once each") {
    VerbsRig rig;
    NaPair pair(*rig);
    ExposedMemory memory(*rig, pair.b, region_bytes, Access::read);
    std::vector<std::byte> local(64);
    REQUIRE(run(*rig, pair.a, memory.get(pair.ab, 0, local)) == Code::ok);
    rig.fake.refuse_posts(ENOMEM, 1, 0);
    CHECK(run(*rig, pair.a, memory.get(pair.ab, 0, local)) == Code::unavailable);
    const Down down = rig.wait_for_down(pair.a);
    says(down.error, "the device refused a transfer: Cannot allocate memory");
}
