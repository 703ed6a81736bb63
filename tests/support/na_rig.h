// Endpoints of one provider in one thread, polled in turn. All their events are recorded and
// checked against the rules at the head of na/provider.h.
//
// A simulated provider runs on a manual clock that jumps to the next arrival, so that no test
// sleeps; the others run on the real clock.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/manual_clock.h"
#include "base/random.h"
#include "base/steady_clock.h"
#include "na/arena.h"
#include "na/door.h"
#include "support/capability.h"
#include "support/na_providers.h"
#include "support/test_timeout.h"

namespace weft::test {

struct Down {
    na::PeerId peer;
    Code code = Code::ok;
    std::string error;
};

// The state of one side of a connection, seen from the other.
enum class PeerState { connecting, up, down, closed };

struct PeerRecord {
    PeerState state = PeerState::connecting;
    bool incoming = false;
    bool is_over = false;    // Down at its peer_up: only peer_down follows.
    std::uint64_t sent = 0;  // Frames.
    std::uint64_t received = 0;
    bool writable = false;  // An event since the last refusal.
};

class NaRig;

class NaNode {
  public:
    na::Endpoint& operator*() { return *endpoint; }
    na::Endpoint* operator->() { return endpoint.get(); }

    PeerRecord& at(na::PeerId peer);
    // The peer that is up and has this incarnation; none: a zero id.
    na::PeerId peer_of(const na::Incarnation& incarnation);
    std::size_t count(PeerState state) const;
    std::uint64_t received() const;  // Frames, of all peers.

    // One frame of `bytes` (at least 8): its content encodes its position in the stream to this
    // peer. False: refused for now.
    bool send(na::PeerId peer, std::size_t bytes);
    // A transfer that must complete exactly once. Returns its cookie, 0: not accepted.
    std::uint64_t post(na::RmaItem item);
    void close(na::PeerId peer);
    void fence(std::uint32_t region, na::Holders holders = na::Holders::lost);
    // Polls once for at most `batch` events and checks them.
    std::size_t poll(std::size_t batch = 16);
    void judge(const na::Event& event);

    std::unique_ptr<na::Endpoint> endpoint;
    na::Incarnation incarnation;
    std::vector<Down> downs;
    std::map<std::uint64_t, Code> rma_done;  // By cookie.
    std::set<std::uint64_t> rma_under_way;
    std::set<std::uint32_t> fencing;
    std::set<std::uint32_t> fenced;
    // Of several contexts: work that others have passed to it.
    std::deque<Function<void()>> passed;
    bool is_blocked = false;  // Its thread takes no turn.

  private:
    friend class NaRig;
    void take_message(na::PeerId peer, ByteView bytes);
    void require_free(na::PeerId peer) const;

    NaRig* rig_ = nullptr;
    std::map<std::pair<std::uint32_t, std::uint32_t>, PeerRecord> peers_;
    std::optional<std::uint32_t> index_down_;  // Of the peer_down of the last poll's batch.
};

struct OpenOptions {
    bool listens = true;
    std::string uri = {};  // Empty: a fresh one.
    std::size_t peers_max = 64;
    bool sleeps = true;
    std::string_view verbs_without = {};
    na::Resolver* resolver = nullptr;
    // ---- of open_contexts()
    na::Exposures* exposures = nullptr;           // Outlives the rig.
    std::shared_ptr<na::Door>* closed = nullptr;  // Gets the door, which the test starts.
};

class NaRig {
  public:
    NaRig(std::function<Wire(base::Random&)> make, std::uint64_t seed = 1);
    template <class WireType>
    static NaRig on(std::uint64_t seed = 1) {
        return NaRig(&WireType::make, seed);
    }
    ~NaRig();
    NaRig(const NaRig&) = delete;
    NaRig& operator=(const NaRig&) = delete;

    // False: this machine lacks the transport; noted, nothing to test.
    bool usable();
    NaNode& open(OpenOptions options = {});
    Result<std::unique_ptr<na::Endpoint>> try_open(const OpenOptions& options,
                                                   na::Incarnation incarnation);
    // Endpoints of one runtime's contexts, which listen at one address.
    std::vector<NaNode*> open_contexts(std::uint16_t contexts, OpenOptions options = {});
    void destroy(NaNode& node);
    // A connection that is up on both sides: the id of `to` at `from`.
    na::PeerId connect(NaNode& from, NaNode& to);
    // `wanted`: na::Address::wanted.
    na::PeerId start_connect(NaNode& from, const std::string& uri, std::uint16_t wanted = 0);
    Result<na::PeerId> try_connect(NaNode& from, const std::string& uri, std::uint16_t wanted = 0);

    // Of the first endpoint. Requires: it was opened.
    const na::Caps& caps() const {
        REQUIRE(caps_);
        return *caps_;
    }

    // One turn of every node; moves the virtual clock on when nothing happened.
    void pump();
    bool pump_until(const std::function<bool()>& done, Duration limit = test_timeout);
    // Long enough for anything in flight to arrive.
    void run_until_idle();
    TimePoint now() const;
    // Time passes for the nodes, but they are not polled.
    void skip(Duration time);
    // Time passes while the nodes are polled.
    void pass(Duration time);
    // To the next arrival when simulated; a short sleep otherwise.
    void step_time();

    std::string fresh_uri();
    Buffer allocate(std::size_t bytes);  // From the arena.

    base::SeededRandom random;
    Wire wire;

  private:
    std::optional<na::Caps> caps_;
    base::ManualClock manual_;
    base::SteadyClock steady_;
    Duration skipped_{};  // On top of the clock.
    base::Log log_{LogLevel::off};
    std::shared_ptr<na::Arena> arena_;
    std::vector<std::unique_ptr<NaNode>> nodes_;
};

// A pair of connected nodes, the start of a typical test.
struct NaPair {
    NaNode& a;
    NaNode& b;
    na::PeerId ab;  // The id of b at a.
    na::PeerId ba;

    explicit NaPair(NaRig& rig) : a(rig.open()), b(rig.open()) {
        ab = rig.connect(a, b);
        ba = b.peer_of(a.incarnation);
        REQUIRE(ba);
    }
};

// Frame-shaped bytes: {u8 kind, u8 flags, u16 tag, u32 bytes} and a body, a function of the
// position in the stream.
void fill_frame(Bytes to, std::uint64_t sequence);
bool is_frame(ByteView bytes, std::uint64_t sequence);

void fill_random(Bytes to, base::Random& random);

}  // namespace weft::test
