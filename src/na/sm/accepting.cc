// Accepting: incoming connections, until they are identified or refused.
#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "na/common/no_room.h"
#include "na/sm/endpoint.h"

namespace weft::na::sm {
namespace {

// The oldest without a hello for so long is refused to make room for the next one.
constexpr Duration evictable_after = 5ms;
constexpr int accepts_per_poll = 16;

}  // namespace

Status SmEndpoint::listen() {
    SmDoor* const door = listener_.door.get();
    if (!door) return {};
    if (!listener_.acceptor.open(epoll_.get(), door->socket(), listener_serial, send_refusal,
                                 {*door, parts_.context})) {
        return fail(Code::resource_exhausted,
                    errno_text("sm: epoll_ctl") + " (fs.epoll.max_user_watches)");
    }
    door->enter(parts_.context, *this);
    return {};
}

void SmEndpoint::accept_some(TimePoint now) {
    // The rest is for those that other contexts pass on, which are admitted at once.
    const std::size_t places = listener_.door->accepting_share(incoming_max);
    for (int i = 0; i < accepts_per_poll; ++i) {
        if (incoming_.size() >= places && !evict_oldest_incoming(now)) return;
        base::UniqueFd socket = listener_.acceptor.accept(now, parts_.log, address());
        if (!socket) return;
        if (Status status = validate_credentials(socket.get()); !status.ok()) {
            send_refusal(socket.get(), status);
            continue;
        }
        if (Connection* const added = add_incoming(std::move(socket), now + handshake_max))
            on_hello(*added);  // Usually it has arrived already.
    }
}

// nullptr: there is no room for it; it is refused.
Connection* SmEndpoint::add_incoming(base::UniqueFd socket, TimePoint deadline) {
    std::unique_ptr<Connection> accepted(new (std::nothrow) Connection);
    if (!accepted) {
        send_refusal(socket.get(), listener_without_memory(busy_code));
        return nullptr;
    }
    incoming_.push_back(std::move(accepted));
    Connection& connection = *incoming_.back();
    connection.side = Side::acceptor;
    connection.info.uri = "an unnamed peer";
    connection.socket = std::move(socket);
    connection.connect.since = control_.now;
    connection.connect.deadline = deadline;
    connection.move_to(PeerPhase::handshaking);
    ++handshakes_;
    if (watch_socket(connection)) return &connection;
    refuse_incoming(connection, fail(busy_code, "epoll takes no more descriptors"));
    return nullptr;
}

// False: all of them connected just now.
bool SmEndpoint::evict_oldest_incoming(TimePoint now) {
    WEFT_ASSERT(!incoming_.empty());
    Connection& oldest = *incoming_.front();
    if (now - oldest.connect.since < evictable_after) {
        listener_.acceptor.pause_until(oldest.connect.since + evictable_after);
        return false;
    }
    refuse_incoming(oldest, fail(busy_code, "the listener has too many unfinished handshakes"));
    return true;
}

// A hello, or the reason why there is none.
void SmEndpoint::on_incoming(Connection& connection,
                             Result<std::optional<HelloPacket>> hello_packet) {
    const bool has_come = hello_packet.ok();
    Status status =
        has_come ? place(connection, std::move(**hello_packet)) : std::move(hello_packet).status();
    if (status.ok()) return;
    if (status.code() == Code::resource_exhausted) {
        parts_.log.write_rate_limited(
            LogLevel::warning, control_.last,
            "sm: " + address() + " can't take another connection: " + std::string(status.text()));
        // No descriptor was free for the files of the hello: busy, since one may be free later.
        if (!has_come) status = fail(busy_code, std::string(status.text()));
    }
    refuse_incoming(connection, status);
}

// Admits the peer, or passes it to the context that it is for.
Status SmEndpoint::place(Connection& connection, HelloPacket hello_packet) {
    const Hello& theirs = hello_packet.hello;
    const bool knows_contexts = (theirs.features & feature::contexts) != 0;
    SmDoor& door = *listener_.door;
    Result<Placement::Place> place = door.placement().place(
        {theirs.incarnation, theirs.context, theirs.wanted}, control_.now, parts_.random);
    if (!place) return std::move(place).status();
    connection.place = *std::move(place);
    const std::uint16_t context = connection.place.context();
    if (context == parts_.context) return admit(connection, std::move(hello_packet));
    if (!door.has_room(context)) return listener_context_is_full(context);
    PassedPeer empty;
    const std::shared_ptr<PassedPeer> passed = share_part(empty);
    if (!passed) return listener_without_memory(busy_code);
    passed->hello_packet = std::move(hello_packet);
    passed->place = std::move(connection.place);
    passed->deadline = connection.connect.deadline;
    --handshakes_;
    unwatch_socket(connection);
    passed->socket = std::move(take_incoming(connection)->socket);
    if (knows_contexts) send_passed(passed->socket.get());
    const bool is_passed = door.pass(context, control_.now, [passed](Endpoint* to) {
        if (to) static_cast<SmEndpoint*>(to)->take_passed(std::move(*passed));
    });
    if (!is_passed) send_refusal(passed->socket.get(), listener_context_is_full(context));
    return {};
}

// In a turn of this context, between two polls.
void SmEndpoint::take_passed(PassedPeer passed) {
    if (incoming_.size() >= incoming_max) {
        return send_refusal(passed.socket.get(),
                            fail(busy_code, "the listener has too many unfinished handshakes"));
    }
    Connection* const added = add_incoming(std::move(passed.socket), passed.deadline);
    if (!added) return;
    added->place = std::move(passed.place);
    const Status status = admit(*added, std::move(passed.hello_packet));
    if (!status.ok()) refuse_incoming(*added, status);
}

// The peer is at its context.
Status SmEndpoint::admit(Connection& connection, HelloPacket hello_packet) {
    Status status = validate_hello(connection, std::move(hello_packet));
    return status.ok() ? accept_hello(connection) : status;
}

// Gives an incoming peer a slot and sends the hello, after which the peer may use the connection.
Status SmEndpoint::accept_hello(Connection& connection) {
    if (!has_slot()) return listener_at_peers_max(parts_.peers_max);
    if (!peers_.prepare_add()) return listener_without_memory();
    Status status = send_hello(connection.socket.get(), hello(), own_files());
    if (!status.ok()) return status;
    bring_up(peers_.add(take_incoming(connection)));
    return {};
}

void SmEndpoint::refuse_incoming(Connection& connection, const Status& why) {
    WEFT_ASSERT(handshakes_ != 0 && connection.phase == PeerPhase::handshaking);
    parts_.log.write_rate_limited(
        LogLevel::info, control_.last,
        "sm: refused a connection to " + address() + ": " + why.to_string());
    send_refusal(connection.socket.get(), why);
    --handshakes_;
    unwatch_socket(connection);
    take_incoming(connection);  // The peer has received no descriptors.
}

std::unique_ptr<Connection> SmEndpoint::take_incoming(Connection& connection) {
    const auto at = std::find_if(incoming_.begin(), incoming_.end(),
                                 [&](const auto& one) { return one.get() == &connection; });
    WEFT_ASSERT(at != incoming_.end());
    std::unique_ptr<Connection> taken = std::move(*at);
    incoming_.erase(at);
    listener_.acceptor.resume();
    return taken;
}

}  // namespace weft::na::sm
