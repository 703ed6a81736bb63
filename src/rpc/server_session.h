// What a server keeps of one client's session: for each slot the call that runs in it, or the
// outcome of its last one, until the client's next number in that slot says that it was heard.
//
// Slots, as in NFS 4.1 (RFC 8881, 2.10.6); docs/adr/0006-sessions.md.
#pragma once

#include <array>
#include <cstring>
#include <memory>

#include "base/timer_wheel.h"
#include "core/peer.h"
#include "rpc/session_wire.h"

namespace weft::rpc {

struct ServerCall;
class Server;

// In one of the lists of those that may make room (ServerSessions).
struct SpareSession : base::ListNode {};

class ServerSession : public base::Timer, public SpareSession {
  public:
    static constexpr std::size_t kept_bytes_max = 96;
    static constexpr std::uint8_t nothing_kept = 255;

    enum class Keeps : std::uint8_t {
        reply,    // As far as it is small.
        outcome,  // Not its reply, which is worth nothing without what went ahead of it.
        nothing,  // Idempotent: asked again it runs again.
        denied,   // Likewise, and it was said that it never came: its number may come once more.
    };

    struct Slot {
        ServerCall* call = nullptr;  // That executes.
        std::uint32_t sequence = 0;  // Of the last call that came; 0: none.
        std::uint16_t outcome = 0;   // Of a call that is over, as in a reply's head.
        std::uint8_t bytes = 0;      // Of its reply or text, that are kept; or nothing_kept.
        Keeps keeps = Keeps::reply;
        std::array<std::byte, kept_bytes_max> reply;
    };
    static_assert(sizeof(Slot) <= 128);

    ServerSession(Server& of, const SessionId& as) : server(of), id(as) {}

    // Makes slots for `wanted` calls at once; as many as there is memory for.
    void grow(std::uint32_t wanted) {
        while (slots_ < wanted) {
            auto& block = blocks_[slots_ / block_slots];
            block.reset(new (std::nothrow) Slot[block_slots]);
            if (!block) return;
            slots_ += block_slots;
        }
    }
    std::uint32_t slots() const { return slots_; }
    Slot& slot(std::uint32_t index) { return blocks_[index / block_slots][index % block_slots]; }

    // The outcome of the call in a slot, with its reply or text. Requires: a body that is
    // somewhere, also when it is empty.
    static bool is_kept(const Slot& slot, std::size_t bytes) {
        return slot.keeps == Keeps::reply && bytes <= kept_bytes_max;
    }
    static void keep(Slot& slot, std::uint16_t outcome, const std::byte* body, std::size_t bytes) {
        if (!is_kept(slot, bytes)) [[unlikely]] {
            return keep_nothing(slot, outcome);
        }
        keep_small(slot, outcome, body, bytes);
    }
    // The same. Requires: is_kept().
    static void keep_small(Slot& slot, std::uint16_t outcome, const std::byte* body,
                           std::size_t bytes) {
        slot.call = nullptr;
        slot.outcome = outcome;
        slot.bytes = static_cast<std::uint8_t>(bytes);
        std::memcpy(slot.reply.data(), body, bytes);
    }

    static void keep_nothing(Slot& slot, std::uint16_t outcome) {
        slot.call = nullptr;
        slot.outcome = outcome;
        slot.bytes = nothing_kept;
    }

    template <class Visit>
    void for_each_call(Visit&& visit) {
        for (std::uint32_t i = 0; i < slots_; ++i) {
            if (ServerCall* call = slot(i).call) visit(*call);
        }
    }
    // Whether it holds an outcome that may be asked for.
    bool has_outcomes() {
        for (std::uint32_t i = 0; i < slots_; ++i) {
            if (slot(i).sequence != 0) return true;
        }
        return false;
    }

    Server& server;
    const SessionId id;
    core::Peer* peer = nullptr;    // nullptr: its connection is lost.
    std::string client;            // What it calls itself, for people.
    std::uint32_t window = 0;      // As granted last.
    std::size_t parsed_bytes = 0;  // What its calls hold.
    TimePoint connected_at{};      // Its connection, or the last one that it had.
    Duration connected{};          // All connections that it lost, together.
    std::uint32_t held = 0;        // Without a connection: calls of it that handlers have.
    TimePoint lost_at{};
    TimePoint awaited_until{};  // Its client may come back, or ask for replies that were lost.
    bool is_told = false;       // Its handlers know that the client is gone.
    bool is_over = false;       // Verdict::ended was sent: its requests never come.
    // No wait ends later, however often it is lost and resumed while the server ends.
    TimePoint awaited_end = never;

  private:
    static constexpr std::uint32_t block_slots = 64;
    static_assert(slots_at_first % block_slots == 0 && slots_max % block_slots == 0);

    std::array<std::unique_ptr<Slot[]>, slots_max / block_slots> blocks_;
    std::uint32_t slots_ = 0;
};

}  // namespace weft::rpc
