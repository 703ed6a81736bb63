// Connections of the fake rdma_cm: two connected ids, and the messages between them.
#pragma once

#include "support/fake_verbs_world.h"

namespace weft::test::fake {

struct CmEvent : rdma_cm_event {
    CmEvent() : rdma_cm_event{} {}
    std::vector<std::byte> words;  // Private data, padded.
};

struct CmChannel : rdma_event_channel {
    CmChannel() : rdma_event_channel{} {}
    Bell bell;
    std::deque<std::unique_ptr<CmEvent>> events;
    int ids = 0;
};

enum class CmState : std::uint8_t {
    idle,
    bound,
    listening,
    resolved,
    routed,
    asking,    // Its request is in flight,
    asked,     // or has arrived, and waits for a reply,
    answered,  // which has been sent,
    told,      // or has arrived, and waits for `establish`.
    connected,
    over,
};

struct CmId : rdma_cm_id {
    CmId() : rdma_cm_id{} {}
    std::uint32_t number = 0;
    CmState state = CmState::idle;
    std::string host;        // Bound to, or the target of the connection.
    std::uint16_t port = 0;  // Its port.
    std::uint16_t own_port = 0;
    int backlog = 0;
    std::uint32_t other = 0;  // The id at the other end.
    rdma_conn_param own{}, theirs{};
    std::uint32_t sequence = 0, their_sequence = 0;  // Numbers of the first packets.
    std::uint8_t ack_timeout = 0;
    int unacknowledged = 0;
};

enum class CmWordKind : std::uint8_t { request, answer, establish, reject, disconnect };

// From one id to another; a request has no other end yet.
struct CmWord {
    CmWordKind kind{};
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    int status = 0;
    std::vector<std::byte> words;
};

struct CmWorld {
    std::unordered_map<std::uint32_t, CmId*> ids;
    std::deque<CmWord> on_the_way;  // Held while the link is cut.
    std::uint16_t last_port = 20'000;
    Context* contexts[2] = {};  // Of rdma_cm itself, one per device.
};
CmWorld& cm();

// Reasons of a refusal (InfiniBand specification, 12.6.7.2).
inline constexpr int reject_no_listener = 8;
inline constexpr int reject_stale = 10;

CmId* find_id(std::uint32_t number);
CmId* make_id(rdma_event_channel* channel, void* context);
void end_id(CmId& id);
void tell_id(CmId& id, rdma_cm_event_type what, int status = 0, std::vector<std::byte> words = {},
             CmId* listener = nullptr);
void say(CmWord word);
// Reports the end of an id to the other side.
void hang_up(CmId& id);

}  // namespace weft::test::fake
