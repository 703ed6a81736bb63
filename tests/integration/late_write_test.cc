// Memory that was returned to its owner is poisoned at once and checked long after: no transfer
// that the owner or its initiator cut off writes there any more.
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include <weft/runtime.h>

#include "base/random.h"
#include "support/catch.h"
#include "support/contexts.h"
#include "support/hold_server.h"
#include "support/rdma_host.h"
#include "support/seed.h"
#include "support/test_timeout.h"
#include "support/usable.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr std::size_t bytes = 768 * 1024;  // More than any transport moves in one turn.
constexpr std::byte poison{0xa5}, written{0x3c};

bool is_filled(ByteView memory, std::byte with) {
    for (std::size_t i = 0; i < memory.size(); i += sizeof(std::uint64_t)) {
        std::uint64_t word;
        std::memcpy(&word, memory.data() + i, sizeof word);
        if (word != 0x0101010101010101u * static_cast<std::uint64_t>(with)) return false;
    }
    return true;
}

// Memory that is exposed, returned, and then must keep its poison until its next use.
struct Place {
    Buffer memory;
    std::atomic<bool> is_back{true};

    void take_back() {
        std::memset(memory.data(), static_cast<int>(poison), bytes);
        is_back.store(true, std::memory_order_release);
    }
};

class Cutting {
  public:
    explicit Cutting(const std::string& uri, std::uint64_t seed) : random_(seed) {
        REQUIRE(owner_.serve(shared(service_), uri).ok());
        const Channel any = initiator_.connect(owner_.addresses().front()).value();
        for (unsigned k = 0; k < server_contexts(); ++k) {
            channels_.push_back(server_contexts() == 1 ? any : any.on(k));
        }
        for (Place& place : lent_) {
            place.memory = owner_.allocate(bytes).value();
            place.take_back();
        }
        for (Place& place : local_) {
            place.memory = initiator_.allocate(bytes).value();
            place.take_back();
        }
        source_ = initiator_.allocate(bytes).value();
        std::memset(source_.data(), static_cast<int>(written), bytes);
    }

    // One transfer, ended by the owner or the initiator at some moment.
    void round() {
        Place& lent = lent_[rounds_ % std::size(lent_)];
        Place& local = local_[rounds_ % std::size(local_)];
        const Channel& channel = channels_[rounds_ % channels_.size()];
        ++rounds_;
        REQUIRE(is_filled(lent.memory.bytes(), poison));
        REQUIRE(is_filled(local.memory.bytes(), poison));
        const bool puts = random_.next() % 2 == 0;
        Region region =
            owner_.expose(lent.memory, {.access = puts ? Access::write : Access::read}).value();
        lent.is_back.store(false, std::memory_order_relaxed);
        bool done = false;
        Status status;
        const auto ended = [&](const Status& with) {
            status = with;
            done = true;
        };
        local.is_back.store(puts, std::memory_order_relaxed);
        const OperationId id =
            puts ? channel.put(region.ref(), 0, source_, {.timeout = test_timeout}, ended)
                 : channel.get(region.ref(), 0,
                               Buffer::adopt(local.memory.bytes(), [&local] { local.take_back(); }),
                               {.timeout = test_timeout}, ended);
        const std::uint64_t turns_max = random_.next() % 8 == 0 ? 64 : 4;
        for (std::uint64_t turns = random_.next() % turns_max; turns > 0 && !done; --turns) {
            initiator_.turn();
        }
        if (random_.next() % 2 == 0) channel.cancel_transfer(id);
        region.close([&lent] { lent.take_back(); });
        REQUIRE(initiator_.turn_until(
            [&] {
                return done && lent.is_back.load(std::memory_order_acquire) &&
                       local.is_back.load(std::memory_order_acquire);
            },
            test_timeout));
        cut_ += !status.ok();
    }

    // Repeats rounds until `cuts` transfers were cut off.
    void run(std::size_t cuts) {
        while (cut_ < cuts && rounds_ < 50 * cuts) round();
        // Late writes would have arrived by now: the last transfer had as many turns as the first.
        for (int i = 0; i < 1000; ++i) initiator_.turn();
        for (const Place& place : lent_) REQUIRE(is_filled(place.memory.bytes(), poison));
        for (const Place& place : local_) REQUIRE(is_filled(place.memory.bytes(), poison));
        INFO(cut_ << " of " << rounds_ << " transfers were cut off");
        CHECK(cut_ == cuts);
    }

  private:
    base::SeededRandom random_;
    HoldServer service_;
    Place lent_[32], local_[32];
    Buffer source_;
    Runtime owner_ = Runtime::create({.contexts = server_contexts()}).value();
    Runtime initiator_ = Runtime::create({.wait = WaitMode::spin, .manual = true}).value();
    std::vector<Channel> channels_;  // One for each context of the owner.
    std::size_t rounds_ = 0;
    std::size_t cut_ = 0;
};

void check(const std::string& uri, std::size_t cuts) {
    if (!is_in_this_build(uri)) return;
    const std::uint64_t seed = setting("TEST_SEED", 1);
    INFO("TEST_SEED=" << seed);
    Cutting cutting(uri, seed);
    cutting.run(cuts);
}

std::string sm_uri() { return "sm://late-" + std::to_string(::getpid()); }

}  // namespace

TEST_CASE("no write arrives late over sm", "[seeded]") { check(sm_uri(), 500); }
TEST_CASE("no write arrives late over tcp", "[seeded]") { check("tcp://127.0.0.1:0", 500); }
TEST_CASE("no write arrives late over ofi+tcp", "[seeded]") { check("ofi+tcp://127.0.0.1:0", 20); }

TEST_CASE("no write arrives late over verbs", "[seeded]") {
    if (const auto uri = test::rdma_uri()) check(*uri, 100);
}

TEST_CASE("no write arrives late over ofi+verbs", "[seeded]") {
    if (const auto uri = test::rdma_uri("ofi+verbs")) check(*uri, 20);
}

TEST_CASE("no write of 100000 cancelled transfers arrives late over sm", "[.][late]") {
    check(sm_uri(), 100'000);
}
TEST_CASE("no write of 100000 cancelled transfers arrives late over tcp", "[.][late]") {
    check("tcp://127.0.0.1:0", 100'000);
}
TEST_CASE("no write of 2000 cancelled transfers arrives late over ofi+tcp", "[.][late]") {
    check("ofi+tcp://127.0.0.1:0", 2000);
}
