// Opening an endpoint and connecting.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/random.h"
#include "na/common/no_room.h"
#include "na/own_stall.h"
#include "na/tcp/endpoint.h"

namespace weft::na::tcp {

// Of the descriptors, while the hot sockets are polled.
static constexpr DescriptorPolls::Intervals descriptor_poll_intervals{100us, 16, 10ms};

static Limits limits_of(const EndpointParts& parts) {
    Limits limits;
    limits.message_bytes_max = tcp::message_bytes_max;
    limits.eager_bytes_max = tcp::eager_bytes_max;
    limits.rma_bytes_max = tcp::rma_bytes_max;
    limits.rma_depth = tcp::rma_depth;
    limits.rma_per_peer_max = tcp::rma_per_peer_max;
    limits.peers_max = static_cast<std::uint32_t>(parts.peers_max);
    return limits;
}

TcpEndpoint::TcpEndpoint(std::string_view scheme, EndpointParts parts, TimePoint now)
    : scheme_(scheme),
      parts_(std::move(parts)),
      limits_(limits_of(parts_)),
      owner_(::getpid()),
      epoll_(base::UniqueFd::close_on_fork([&] { return ::epoll_create1(EPOLL_CLOEXEC); })),
      descriptor_polls_(descriptor_poll_intervals, now),
      regions_(parts_.exposures, parts_.context),
      transfers_(rma_depth),
      now_(now) {
    pending_peers_.reserve(pending_peers_max);
}

Result<std::unique_ptr<Endpoint>> TcpEndpoint::open(std::string_view scheme, const Address* listen,
                                                    EndpointParts parts, TimePoint now) {
    std::unique_ptr<TcpEndpoint> endpoint(new TcpEndpoint(scheme, std::move(parts), now));
    if (!endpoint->epoll_) {
        return fail(Code::resource_exhausted,
                    std::string("tcp: epoll_create1: ") + std::strerror(errno));
    }
    if (listen) {
        DoorParts alone;
        alone.peers_max = endpoint->limits_.peers_max;
        Result<std::shared_ptr<TcpDoor>> door = TcpDoor::open(scheme, *listen, std::move(alone));
        if (!door) return std::move(door).status();
        endpoint->listener_.door = *std::move(door);
    } else if (endpoint->parts_.door) {
        endpoint->listener_.door = std::static_pointer_cast<TcpDoor>(endpoint->parts_.door);
    }
    if (Status status = endpoint->listen(); !status.ok()) return status;
    return std::unique_ptr<Endpoint>(std::move(endpoint));
}

Status TcpEndpoint::listen() {
    TcpDoor* const door = listener_.door.get();
    if (!door) return {};
    if (!watch_listener())
        return fail(Code::resource_exhausted, address() + ": " + std::strerror(errno));
    door->enter(parts_.context, *this);
    return {};
}

const SocketName& TcpEndpoint::own_name() const {
    static const SocketName none;
    return listener_.door ? listener_.door->name() : none;
}

std::string TcpEndpoint::address() const {
    return own_name().empty() ? std::string() : std::string(scheme_) + "://" + own_name().text();
}

// The hello for the peer at the other end of `socket`. A listener on all addresses announces the
// local address of that socket.
Hello TcpEndpoint::hello(int socket) const {
    Hello hello = own_hello(parts_, limits_, {});
    if (!hello.uri.empty() || own_name().empty()) return hello;
    const SocketName here = !is_local() && own_name().is_any() ? local_name(socket) : SocketName();
    hello.uri = here.empty()
                    ? address()
                    : std::string(scheme_) + "://" + here.with_port(own_name().port()).text();
    return hello;
}

Result<PeerId> TcpEndpoint::connect(const Address& to, TimePoint now) {
    now_ = now;
    if (to.scheme != scheme_ || (!is_local() && to.port == 0)) {
        return fail(Code::invalid_argument, std::string(scheme_) + " can't connect to " + to.uri() +
                                                "; use " + address_form(scheme_) +
                                                (is_local() ? "" : " with a port"));
    }
    if (!has_slot()) return at_peers_max(to, parts_.peers_max);
    Connection* const added = add_peer();
    if (!added) return without_memory(to);
    Connection& connection = *added;
    const PeerId id = connection.id;
    connection.info.uri = to.uri();
    connection.wanted = to.wanted;
    connection.connect.deadline = now + handshake_max;
    ++handshakes_;
    descriptor_polls_.request();
    if (const auto name = is_local() ? SocketName::from_path(to.name) : numeric_name(to)) {
        connection.name = *name;
        enqueue_connect(connection);
    } else {
        connection.phase.move_to(PeerPhase::resolving);
        connection.resolution =
            Resolution::start(to, now, parts_.resolver ? *parts_.resolver : Resolver::system());
    }
    return id;
}

static Duration handshake_time(const Connection& connection) {
    return connection.candidates ? connection.candidates->time(handshake_max) : handshake_max;
}

// For error texts: the address of the attempt, if the host has several.
static std::string place_of(const Connection& connection) {
    return connection.candidates ? connection.name.text() : connection.info.uri;
}

// Waits for a pacer slot, then starts.
void TcpEndpoint::enqueue_connect(Connection& connection) {
    WEFT_ASSERT(connection.phase == PeerPhase::waiting && !connection.connect.has_slot);
    if (connection.connect.take_slot(pacer_, connection.info.uri, connection.id)) start(connection);
}

void TcpEndpoint::start_paced_connects() {
    while (pacer_.has_started()) {
        const ConnectPacer::Started turn = pacer_.next();
        Connection* connection = peers_.find(turn.peer);
        if (!connection || connection->phase != PeerPhase::waiting) {
            pacer_.release(turn.to);
            continue;
        }
        connection->connect.start_turn();
        // If the listener has answered, each connect has its own time to reach it. If it is silent
        // now, connects that waited keep their earlier deadline.
        const bool is_there = pacer_.answered_at(turn.to) != TimePoint::min();
        if (is_there) connection->connect.deadline = now_ + handshake_time(*connection);
        start(*connection);
    }
}

void TcpEndpoint::start(Connection& connection) {
    WEFT_ASSERT(connection.connect.has_slot && !connection.message_socket.socket);
    if (connection.phase == PeerPhase::waiting) connection.phase.move_to(PeerPhase::connecting);
    connection.connect.since = now_;
    // The kernel refuses a path without a listener at once.
    if (is_local()) connection.connect.deadline = never;
    Result<base::UniqueFd> socket = start_connecting(connection.name);
    if (socket && !*socket) {  // The listener's queue is full.
        connection.connect.back_off(now_, parts_.random);
        return;
    }
    if (!socket) {
        return fail_to_connect(connection, socket.status().code(),
                               place_of(connection) + ": " + std::string(socket.status().text()));
    }
    connection.message_socket.socket = *std::move(socket);
    if (!watch(connection.message_socket, true)) {
        take_down(connection, Code::resource_exhausted, connection.info.uri + ": epoll is full");
    }
}

// Back to the state before the socket.
void TcpEndpoint::restart_connect(Connection& connection) {
    close_socket(connection.message_socket);
    connection.handshake = {};
    if (connection.phase != PeerPhase::waiting) connection.phase.move_to(PeerPhase::waiting);
    connection.connect.deadline = now_ + handshake_time(connection);
}

// One address of the host failed: tries the next, if there is one. `timed_out`: it did not answer.
void TcpEndpoint::fail_to_connect(Connection& connection, Code code, std::string why,
                                  bool timed_out) {
    if (connection.candidates && code == Code::unavailable) {
        if (connection.candidates->next(why, timed_out)) {
            connection.name = connection.candidates->name();
            restart_connect(connection);
            connection.connect.hang_ups.clear();
            connection.connect.retry_at = now_;
            descriptor_polls_.request();
            return;
        }
        why = connection.info.uri + ": " + connection.candidates->describe();
    }
    if (timed_out) pacer_.on_no_answer(connection.info.uri, connection.connect.since);
    take_down(connection, code, std::move(why));
}

// The listener has no room for this connection now.
void TcpEndpoint::retry_connect(Connection& connection, std::string why) {
    pacer_.on_refused(connection.info.uri, std::move(why));
    restart_connect(connection);
    pacer_.on_answer(connection.info.uri, now_);
    connection.connect.deadline = now_ + handshake_max;
    connection.connect.back_off(now_, parts_.random);
}

void TcpEndpoint::leave_pacer(Connection& connection) {
    connection.connect.leave(pacer_, connection.info.uri);
    if (pacer_.has_started()) descriptor_polls_.request();
}

void TcpEndpoint::end_handshake(Connection& connection) {
    WEFT_ASSERT(handshakes_ != 0);
    --handshakes_;
    leave_pacer(connection);
}

// The kernel had no answer from the host.
static bool is_timeout(int error) {
    return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
           error == EHOSTDOWN || error == ENETDOWN;
}

void TcpEndpoint::on_connected(Connection& connection) {
    const std::string& uri = connection.info.uri;
    const std::string place = place_of(connection);
    const int error = socket_error(connection.message_socket.socket.get());
    if (error != 0 && error != ECONNRESET && error != EPIPE) {
        return fail_to_connect(connection, Code::unavailable,
                               error == ECONNREFUSED
                                   ? "nothing listens at " + place + " (connection refused)"
                                   : "connecting to " + place + ": " + std::strerror(error),
                               is_timeout(error));
    }
    use_plain_congestion_control(connection.message_socket.socket.get());
    watch_writable(connection.message_socket, false);
    // From now on the kernel reports a lost process or host.
    if (!is_local()) set_handshake_options(connection.message_socket.socket.get());
    pacer_.on_answer(uri, now_);
    connection.connect.since = now_;
    connection.connect.deadline = never;
    std::byte frame[handshake_bytes_max];
    Hello own = hello(connection.message_socket.socket.get());
    own.wanted = connection.wanted;
    const std::size_t bytes = encode_hello(own, frame);
    connection.phase.move_to(PeerPhase::handshaking);
    if (error == 0 && send_handshake(connection.message_socket.socket.get(), {frame, bytes}))
        return;
    read_welcome(connection);  // A refusal may have arrived before.
    if (connection.phase == PeerPhase::handshaking) on_hang_up(connection);
}

// A listener that hangs up without a refusal may have no room either: the attempt is repeated.
void TcpEndpoint::on_hang_up(Connection& connection) {
    std::string why = place_of(connection) +
                      " hung up during the handshake: it ends, has no file descriptor left "
                      "(ulimit -n of its process), or does not speak weft";
    if (connection.connect.hang_ups.may_retry(now_))
        return retry_connect(connection, std::move(why));
    fail_to_connect(connection, Code::unavailable, std::move(why));
}

void TcpEndpoint::read_welcome(Connection& connection) {
    const std::string& uri = connection.info.uri;
    switch (connection.handshake.read(connection.message_socket.socket.get())) {
        case HandshakeReader::Read::more: return;
        case HandshakeReader::Read::whole: break;
        case HandshakeReader::Read::gone:
            if (!is_timeout(connection.handshake.error())) return on_hang_up(connection);
            return fail_to_connect(connection, Code::unavailable,
                                   "lost " + place_of(connection) + " during the handshake: " +
                                       std::strerror(connection.handshake.error()),
                                   true);
        case HandshakeReader::Read::garbage:
            return take_down(connection, Code::data_loss,
                             uri + " does not speak weft over tcp (garbage in its handshake)");
    }
    // At most once for an attempt.
    if (is_control(connection.handshake.frame(), ControlKind::passed) &&
        connection.connect.has_slot) {
        connection.handshake = {};
        leave_pacer(connection);
        return read_welcome(connection);
    }
    Result<Welcome> welcome = decode_welcome(connection.handshake.frame());
    if (!welcome) {
        std::string why = uri + ": " + std::string(welcome.status().text());
        if (!is_retryable(welcome.status().code())) {
            return take_down(connection, welcome.status().code(), std::move(why));
        }
        connection.connect.hang_ups.clear();
        connection.connect.lets_others_go = true;
        return retry_connect(connection, std::move(why));
    }
    connection.ticket = welcome->ticket;
    apply_hello(connection.info, welcome->hello, limits_);
    bring_up(connection);
}

void TcpEndpoint::bring_up(Connection& connection) {
    WEFT_ASSERT(connection.message_socket.watch);
    if (!connection.incoming) {
        if (!is_local()) set_lasting_options(connection.message_socket.socket.get());
        pacer_.on_answer(connection.info.uri, now_);
    }
    end_handshake(connection);
    connection.connect.deadline = never;
    connection.phase.move_to(PeerPhase::up);
    events_.waiting.push(up_event(connection.id, connection.incoming));
}

void TcpEndpoint::serve_handshakes() {
    while (!pending_peers_.empty() && pending_peers_.front()->deadline <= now_) {
        refuse(*pending_peers_.front(),
               fail(Code::deadline_exceeded, "the handshake took too long"));
    }
    start_paced_connects();
    if (handshakes_ == 0) return;
    peers_.for_each([this](Connection& connection) {
        if (connection.phase == PeerPhase::up && connection.bulk) serve_bulk_handshake(connection);
        if (connection.phase < PeerPhase::up) serve_handshake(connection);
    });
    start_paced_connects();
}

void TcpEndpoint::serve_handshake(Connection& connection) {
    const bool is_retry_due =
        connection.phase <= PeerPhase::connecting && connection.connect.retry_at <= now_;
    // The connects with a slot find out whether the listener answers.
    const bool has_turn = connection.phase != PeerPhase::waiting || connection.connect.has_slot;
    if (!has_turn && !is_retry_due) return;
    if (connection.phase == PeerPhase::resolving && connection.resolution->done()) {
        Result<std::vector<SocketName>> names = connection.resolution->answers();
        connection.resolution.reset();
        if (!names) {
            return take_down(connection, Code::unavailable, std::string(names.status().text()));
        }
        connection.name = names->front();
        if (names->size() > 1) {
            connection.candidates = std::make_unique<AddressCandidates>(*names);
            connection.connect.deadline = now_ + handshake_time(connection);
        }
        connection.phase.move_to(PeerPhase::waiting);
        enqueue_connect(connection);
    } else if (has_turn && connection.connect.deadline <= now_) {
        fail_to_connect(connection, Code::unavailable,
                        place_of(connection) + " did not answer in time", true);
    } else if (is_retry_due) {
        if (connection.connect.take_slot(pacer_, connection.info.uri, connection.id))
            start(connection);
    }
}

// This thread did not poll for `stall`: answers may lie unread.
void TcpEndpoint::extend_deadlines(Duration stall) {
    if (handshakes_ == 0 && pending_peers_.empty()) return;
    const TimePoint latest = now_ + handshake_max;
    for (const auto& pending_peer : pending_peers_) {
        pending_peer->deadline = postponed(pending_peer->deadline, stall, latest);
    }
    peers_.for_each([&](Connection& connection) {
        connection.connect.deadline = postponed(connection.connect.deadline, stall, latest);
        connection.connect.hang_ups.postpone(stall, now_);
        if (!connection.bulk) return;
        Bulk& bulk = *connection.bulk;
        bulk.deadline = postponed(bulk.deadline, stall, latest);
        bulk.hang_ups.postpone(stall, now_);
    });
}

TimePoint TcpEndpoint::next_deadline() const {
    TimePoint next = listener_.acceptor.next_deadline();
    if (!pending_peers_.empty()) next = std::min(next, pending_peers_.front()->deadline);
    if (!pending_peers_.empty()) next = std::min(next, descriptor_polls_.next_during_handshake());
    if (handshakes_ == 0) return next;
    if (pacer_.has_started()) return now_;
    peers_.for_each([&](const Connection& connection) {
        const bool wants_bulk = connection.bulk && connection.bulk->phase == BulkPhase::wanted;
        const bool is_resolving = connection.phase == PeerPhase::resolving;
        if (is_resolving || (wants_bulk && connection.incoming)) next = std::min(next, now_ + 1ms);
        if (wants_bulk && !connection.incoming) next = std::min(next, connection.bulk->retry_at);
        const bool has_time = is_resolving || connection.connect.has_slot;
        if (has_time) next = std::min(next, connection.connect.deadline);
        next = std::min(next, connection.connect.retry_at);
        if (connection.bulk) next = std::min(next, connection.bulk->deadline);
    });
    return next == never ? never : std::min(next, descriptor_polls_.next_during_handshake());
}

Connection* TcpEndpoint::add_peer() {
    WEFT_ASSERT(has_slot());
    Connection* const connection = peers_.try_add();
    if (!connection) return nullptr;
    connection->message_socket.connection = connection;
    return connection;
}

}  // namespace weft::na::tcp
