// Inline bulk that no peer of weft sends: it costs the connection or is dropped.
#include "support/victim.h"

using namespace weft;
using namespace weft::test;

TEST_CASE("hostile inline bulk: a request with malformed inline bulk costs its connection") {
    Victim victim;
    RawPeer raw(victim.rig);
    const RegionRef good = Victim::rendezvous_ref(raw.incarnation, 100);
    CHECK_FALSE(costs_the_connection(raw, victim.inline_bulk_request(good, 100, 100)));
    for (const std::size_t declared_bytes : {0, 99, 101, 1 << 20, -1}) {
        check_refused(victim, raw, victim.inline_bulk_request(good, 100, declared_bytes));
    }
    // There is no data: none may be taken from the body.
    check_refused(victim, raw, victim.inline_bulk_request(good, 0, 100));
    RegionRef wrong = good;
    wrong.length = rpc::inline_bulk_bytes_max + 1;
    check_refused(victim, raw,
                  victim.inline_bulk_request(wrong, rpc::inline_bulk_bytes_max + 1,
                                             rpc::inline_bulk_bytes_max + 1));
    wrong = good;
    wrong.length = 0;
    check_refused(victim, raw, victim.inline_bulk_request(wrong, 0, 0));
    wrong = good;
    wrong.access = Access::write;  // A reference for writing only, with data to read.
    check_refused(victim, raw, victim.inline_bulk_request(wrong, 100, 100));
    Frame marked = victim.inline_bulk_request(good, 100, 100);
    marked[1] = std::byte{rpc::inline_bulk_flag | rpc::rendezvous_flag};
    check_refused(victim, raw, marked);
    Frame corrupted = victim.inline_bulk_request(good, 100, 100);
    corrupted[corrupted.size() - sizeof(rpc::InlineBulkTail)] =
        std::byte{99};  // The reference's version.
    check_refused(victim, raw, corrupted);
    Frame bare = victim.request(echo::v1::EchoMethods::Now.id, ByteView());
    rpc::mark_inline_bulk(bare.data());
    check_refused(victim, raw, bare);
}

TEST_CASE("hostile inline bulk: data frames write nothing without the right to the memory") {
    const bool checked = GENERATE(true, false);
    Victim victim(checked);
    Buffer memory = victim.server.allocate(4096).value();
    std::memset(memory.data(), 's', memory.size());
    const Region writable = victim.server.expose(memory, {.access = Access::read_write}).value();
    std::memset(victim.service.memory.data(), 's', victim.service.memory.size());
    RawPeer raw(victim.rig);
    const std::vector<std::byte> evil(64, std::byte{'e'});
    const auto is_untouched = [](const Buffer& buffer) {
        return std::string(as_text(buffer.bytes())) == std::string(buffer.size(), 's');
    };
    const auto send = [&](RegionRef ref) {
        const bool lost = costs_the_connection(raw, Victim::data(ref, evil));
        victim.check_serves();
        return lost;
    };
    RegionRef good = writable.ref(0, evil.size());
    good.access = Access::write;
    RegionRef ref = good;
    ref.key ^= 4;
    CHECK_FALSE(send(ref));
    ref = good, ++ref.generation;
    CHECK_FALSE(send(ref));
    ref = good, ref.owner ^= 1;
    CHECK_FALSE(send(ref));
    ref = good, ref.offset = memory.size() - 63;
    CHECK_FALSE(send(ref));
    ref = victim.region.ref(0, evil.size()), ref.access = Access::write;  // Exposed for reading.
    CHECK_FALSE(send(ref));
    ref = good, ref.access = Access::read;
    CHECK(send(ref));
    ref = good, ref.length = evil.size() + 1;
    CHECK(send(ref));
    CHECK(is_untouched(memory));
    CHECK(is_untouched(victim.service.memory));
    Frame cut = Victim::data(good, {});
    check_refused(victim, raw, cut);
    check_refused(victim, raw, with_bytes(Frame(cut.begin(), cut.end() - 8), 48));

    CHECK_FALSE(send(good));  // A peer with the reference may write, as by a put.
    CHECK(memory.data()[63] == std::byte{'e'});
    CHECK(memory.data()[64] == std::byte{'s'});
}
