// The messages between two ends of a connection through rdma_cm, and their loss.
#include <algorithm>
#include <cerrno>

#include "support/fake_verbs_cm.h"

namespace weft::test::fake {

// Private data arrives in the room that its packet has for it.
static constexpr std::size_t request_room = 56, answer_room = 196, reject_room = 148;

CmWorld& cm() {
    static CmWorld* const only = new CmWorld;
    return *only;
}

CmId* find_id(std::uint32_t number) {
    const auto found = cm().ids.find(number);
    return found == cm().ids.end() ? nullptr : found->second;
}

void tell_id(CmId& id, rdma_cm_event_type what, int status, std::vector<std::byte> words,
             CmId* listener) {
    auto event = std::make_unique<CmEvent>();
    event->id = &id;
    event->listen_id = listener;
    event->event = what;
    event->status = status;
    event->words = std::move(words);
    event->param.conn = id.theirs;
    event->param.conn.private_data = event->words.empty() ? nullptr : event->words.data();
    event->param.conn.private_data_len = static_cast<std::uint8_t>(event->words.size());
    auto& channel = *static_cast<CmChannel*>(id.channel);
    channel.events.push_back(std::move(event));
    channel.bell.ring();
}

static std::vector<std::byte> padded(std::vector<std::byte> words, std::size_t room) {
    words.resize(room);
    return words;
}

static void refuse(CmId& id, int status, std::vector<std::byte> words = {}) {
    id.state = CmState::over;
    id.other = 0;
    tell_id(id, RDMA_CM_EVENT_REJECTED, status, padded(std::move(words), reject_room));
}

static CmId* find_listener(const CmId& caller) {
    for (const auto& [number, id] : cm().ids) {
        const bool is_here = id->host.empty() || id->host == caller.host;
        if (id->state == CmState::listening && id->own_port == caller.port && is_here) return id;
    }
    return nullptr;
}

// Requests that the listener has not read yet.
static int waiting(const CmId& listener) {
    const auto& events = static_cast<CmChannel*>(listener.channel)->events;
    return static_cast<int>(std::ranges::count_if(
        events, [&](const auto& event) { return event->listen_id == &listener; }));
}

static void on_request(CmId& caller, CmWord& word) {
    CmId* const listener = find_listener(caller);
    if (!listener) return refuse(caller, reject_no_listener);
    if (waiting(*listener) >= listener->backlog) return refuse(caller, world().faults.rejection);
    CmId& called = *make_id(listener->channel, listener->context);
    called.verbs = caller.verbs;
    called.port_num = 1;
    called.state = CmState::asked;
    called.host = listener->host;
    called.own_port = listener->own_port;
    called.other = caller.number;
    caller.other = called.number;
    called.theirs = caller.own;
    called.ack_timeout = caller.ack_timeout;  // Carried by the request.
    called.their_sequence = caller.sequence;
    caller.their_sequence = called.sequence;
    tell_id(called, RDMA_CM_EVENT_CONNECT_REQUEST, 0, padded(std::move(word.words), request_room),
            listener);
}

static void arrive(CmWord word) {
    CmId* const from = find_id(word.from);
    if (word.kind == CmWordKind::request) {
        if (from && from->state == CmState::asking) on_request(*from, word);
        return;
    }
    CmId* const to = find_id(word.to);
    if (!to) return;
    switch (word.kind) {
        case CmWordKind::request: return;
        case CmWordKind::answer:
            if (to->state != CmState::asking) return;
            to->state = CmState::told;
            if (from) to->theirs = from->own;
            return tell_id(*to, RDMA_CM_EVENT_CONNECT_RESPONSE, 0,
                           padded(std::move(word.words), answer_room));
        case CmWordKind::establish:
            if (to->state != CmState::answered) return;
            to->state = CmState::connected;
            return tell_id(*to, RDMA_CM_EVENT_ESTABLISHED);
        case CmWordKind::reject: return refuse(*to, word.status, std::move(word.words));
        case CmWordKind::disconnect:
            to->state = CmState::over;
            to->other = 0;
            return tell_id(*to, RDMA_CM_EVENT_DISCONNECTED);
    }
}

void say(CmWord word) {
    if (world().faults.is_cut || world().faults.is_cm_cut) {
        cm().on_the_way.push_back(std::move(word));
    } else {
        arrive(std::move(word));
    }
}

void hang_up(CmId& id) {
    const std::uint32_t other = std::exchange(id.other, 0);
    const CmState before = std::exchange(id.state, CmState::over);
    if (other == 0) return;
    switch (before) {
        case CmState::asking:
        case CmState::asked:
        case CmState::told:
            return say({CmWordKind::reject, id.number, other, world().faults.rejection, {}});
        case CmState::answered:
        case CmState::connected: return say({CmWordKind::disconnect, id.number, other, 0, {}});
        default: return;
    }
}

void cm_restore() {
    for (CmWord& word : std::exchange(cm().on_the_way, {})) arrive(std::move(word));
}

// Ids that wait for a reply get UNREACHABLE.
void cm_expire() {
    cm().on_the_way.clear();
    std::vector<CmId*> waiting;
    for (const auto& [number, id] : cm().ids) {
        if (id->state == CmState::asking || id->state == CmState::answered) waiting.push_back(id);
    }
    for (CmId* id : waiting) {
        id->state = CmState::over;
        tell_id(*id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
    }
}

void cm_remove_device() {
    std::vector<CmId*> bound;
    for (const auto& [number, id] : cm().ids) {
        if (id->verbs) bound.push_back(id);
    }
    for (CmId* id : bound) tell_id(*id, RDMA_CM_EVENT_DEVICE_REMOVAL);
}

}  // namespace weft::test::fake
