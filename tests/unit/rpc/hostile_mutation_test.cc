// Good frames, mutated at random: whatever the result, honest peers are served and nothing leaks.
// TEST_SEED (tests/support/seed.h) and HOSTILE_ROUNDS repeat or extend a run.
#include <google/protobuf/stubs/logging.h>

#include "support/seed.h"
#include "support/victim.h"

using namespace weft;
using namespace weft::test;

namespace {

class Mutator {
  public:
    explicit Mutator(std::uint64_t seed) : random_(seed) {}

    void add(Frames frames) {
        for (Frame& frame : frames) {
            if (!frame.empty()) corpus_.push_back(std::move(frame));
        }
    }

    // One transport message of one to four frames, mutated in one to four ways.
    Frame next() {
        Frame message = pick();
        for (std::uint64_t more = below(4); more > 0; --more) {
            message.resize(core::padded(message.size()));
            const Frame& frame = pick();
            message.insert(message.end(), frame.begin(), frame.end());
        }
        for (std::uint64_t ways = 1 + below(4); ways > 0; --ways) spoil(message);
        return message;
    }

  private:
    std::uint64_t below(std::uint64_t end) { return random_.next() % end; }
    const Frame& pick() { return corpus_[below(corpus_.size())]; }

    void spoil(Frame& message) {
        const std::size_t at = below(message.size());
        switch (below(7)) {
            case 0: message[at] ^= static_cast<std::byte>(1u << below(8)); break;
            case 1: message[at] = static_cast<std::byte>(random_.next()); break;
            case 2: message.resize(at + 1); break;
            case 3: {  // Its end is replaced by the end of another frame.
                const Frame& other = pick();
                message.resize(at + 1);
                message.insert(message.end(),
                               other.begin() + static_cast<std::ptrdiff_t>(below(other.size())),
                               other.end());
                break;
            }
            case 4: {  // A number at an extreme.
                static constexpr std::uint32_t extremes[] = {
                    0, 1, 7, 8, 0x7fffffff, 0x80000000, 0xfffffff8, 0xffffffff};
                if (message.size() < 4) break;
                const std::size_t word = below(message.size() / 4) * 4;
                base::store(message.data() + word, extremes[below(std::size(extremes))]);
                break;
            }
            case 5: message.insert(message.end(), below(64), std::byte{0}); break;
            default: {  // Corrects the length, so that the receiver reads the rest.
                if (message.size() < sizeof(core::FrameHead)) break;
                base::store(message.data() + 4, static_cast<std::uint32_t>(message.size()));
            }
        }
    }

    base::SeededRandom random_;
    Frames corpus_;
};

// Frames that an honest client sends; a listener that answers nothing receives them.
Frames overheard(Victim& victim) {
    RawPeer listener(victim.rig, "listener");
    Channel to = victim.client.connect("sim://listener").value();
    const auto ignore = [](const Status&, ByteView) {};
    const std::string body = request_of("overheard").SerializeAsString();
    to.call(echo::v1::EchoMethods::Now.id, as_bytes(body), {.timeout = 1ms}, ignore);
    to.call(echo::v1::EchoMethods::Later.id, as_bytes(body), {.timeout = 1ms}, ignore);
    for (int i = 0; i < 10; ++i) listener.wait(500us);  // Receives the cancels, too.
    return listener.take();
}

// The attacked runtimes and the source of the mutated frames.
struct Attack {
    explicit Attack(std::uint64_t first_seed)
        : seed(setting("TEST_SEED", first_seed)),
          rounds(setting("HOSTILE_ROUNDS", 4000)),
          victim(GENERATE(true, false), seed),
          mutator(seed) {
        mutator.add(victim.good_frames());
    }

    void check_nothing_is_left() {
        victim.rig.run_for(5s);
        CHECK(node_of(victim.server).server.executing() == 0);
        CHECK(node_of(victim.other).server.executing() == 0);
        CHECK(node_of(victim.server).client.in_flight() == 0);
        CHECK(node_of(victim.server).bulk.transfers.in_flight() == 0);
        CHECK(node_of(victim.server).bulk.regions->open_regions() == 1);
        CHECK(victim.rig.world->late_accesses() == 0);
    }

    const google::protobuf::LogSilencer no_complaints;  // About text that is no UTF-8.
    const std::uint64_t seed;
    const std::uint64_t rounds;
    Victim victim;  // Its transport checks transfers by itself, or does not.
    Mutator mutator;
};

}  // namespace

TEST_CASE("hostile mutations: a server keeps serving, whatever frames it receives", "[seeded]") {
    Attack attack(20'261'121);
    Victim& victim = attack.victim;
    attack.mutator.add(overheard(victim));
    {
        RawPeer raw(victim.rig);
        for (std::uint64_t round = 0; round < attack.rounds; ++round) {
            const Frame message = attack.mutator.next();
            INFO("TEST_SEED=" << attack.seed << ", round " << round << ": " << hex_of(message));
            if (!raw.peer || raw.lost) raw.connect("server");
            raw.send(message);
            raw.wait();
            raw.take();
            victim.check_serves();
        }
    }
    attack.check_nothing_is_left();
}

TEST_CASE("hostile mutations: a client's calls complete once, whatever replies it receives",
          "[seeded]") {
    Attack attack(20'261'122);
    Victim& victim = attack.victim;
    {
        RawPeer liar(victim.rig, "liar");
        Channel channel = victim.client.connect("sim://liar").value();
        RegionRef ref;
        ref.version = 1;
        ref.access = Access::read_write;
        ref.length = 1 << 16;
        ref.owner = liar.incarnation.low;
        const Buffer local = victim.client.allocate(4096).value();
        for (std::uint64_t round = 0; round < attack.rounds; ++round) {
            int calls = 0, transfers = 0;
            weft::call(channel, echo::v1::EchoMethods::Now, request_of("question"),
                       CallOptions{.timeout = 2ms},
                       [&](const Status&, const echo::v1::EchoReply&) { ++calls; });
            channel.get(ref, 0, local, {.timeout = 2ms}, [&](const Status&) { ++transfers; });
            const Frame message = attack.mutator.next();
            INFO("TEST_SEED=" << attack.seed << ", round " << round << ": " << hex_of(message));
            for (int i = 0; i < 3; ++i) liar.wait(20us);
            liar.take();
            liar.send(message);
            liar.wait(3ms);
            REQUIRE(calls == 1);
            REQUIRE(transfers == 1);
            victim.check_serves();
        }
        channel = Channel();
    }
    attack.check_nothing_is_left();
    CHECK(node_of(victim.client).client.in_flight() == 0);
    CHECK(node_of(victim.client).bulk.transfers.in_flight() == 0);
}
