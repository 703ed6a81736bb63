// Opening an endpoint and connecting.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/random.h"
#include "na/own_stall.h"
#include "na/tcp/endpoint.h"

namespace weft::na::tcp {

TcpEndpoint::TcpEndpoint(std::string_view scheme, EndpointParts parts, TimePoint now)
    : scheme_(scheme),
      parts_(std::move(parts)),
      epoll_(base::UniqueFd::closed_in_children([&] { return ::epoll_create1(EPOLL_CLOEXEC); })),
      owner_(::getpid()),
      looked_at_(now),
      transfers_(rma_depth),
      waste_(new std::byte[waste_bytes]),
      now_(now) {
    limits_.message_bytes_max = tcp::message_bytes_max;
    limits_.eager_bytes_max = tcp::eager_bytes_max;
    limits_.rma_bytes_max = tcp::rma_bytes_max;
    limits_.rma_depth = tcp::rma_depth;
    limits_.rma_share = tcp::rma_share;
    limits_.peers_max = static_cast<std::uint32_t>(parts_.peers_max);
}

Result<std::unique_ptr<Endpoint>> TcpEndpoint::open(std::string_view scheme, const Address* listen,
                                                    EndpointParts parts, TimePoint now) {
    std::unique_ptr<TcpEndpoint> endpoint(new TcpEndpoint(scheme, std::move(parts), now));
    if (!endpoint->epoll_) {
        return fail(Code::resource_exhausted,
                    std::string("tcp: epoll_create1: ") + std::strerror(errno));
    }
    if (listen) {
        if (Status status = endpoint->listen(*listen); !status.ok()) return status;
    }
    return std::unique_ptr<Endpoint>(std::move(endpoint));
}

Status TcpEndpoint::listen(const Address& at) {
    if (at.scheme != scheme_) {
        return fail(Code::invalid_argument,
                    std::string(scheme_) + " can't listen at " + at.uri() + "; use " + form());
    }
    if (is_local()) return listen_at_path(at);
    const Result<SocketName> name = wait_for_name(at);
    if (!name) return name.status();
    Result<base::UniqueFd> listener = listen_at(*name, at.uri());
    if (!listener) return std::move(listener).status();
    port_ = *std::move(listener);
    name_ = local_name(port_.get());
    if (name_.empty() || !watch_listener()) {
        return fail(Code::resource_exhausted, at.uri() + ": " + std::strerror(errno));
    }
    return {};
}

Status TcpEndpoint::listen_at_path(const Address& at) {
    Result<NamedSocket> socket =
        NamedSocket::listen(at.name, at.name + ".lock", SOCK_STREAM, at.uri());
    if (!socket) return std::move(socket).status();
    path_ = *std::move(socket);
    name_ = *SocketName::from_path(at.name);
    if (watch_listener()) return {};
    return fail(Code::resource_exhausted, at.uri() + ": " + std::strerror(errno));
}

std::string TcpEndpoint::form() const { return is_local() ? "unix:///path" : "tcp://host:port"; }

std::string TcpEndpoint::address() const {
    return name_.empty() ? std::string() : std::string(scheme_) + "://" + name_.text();
}

// To the peer at the other end of `socket`, which reaches us where it ends here.
Hello TcpEndpoint::hello(int socket) const {
    Hello hello;
    hello.incarnation = parts_.incarnation;
    hello.message_bytes_max = tcp::message_bytes_max;
    hello.eager_bytes_max = tcp::eager_bytes_max;
    hello.uri = parts_.public_uri;
    if (!hello.uri.empty() || name_.empty()) return hello;
    const SocketName here = !is_local() && name_.is_any() ? local_name(socket) : SocketName();
    hello.uri = here.empty() ? address()
                             : std::string(scheme_) + "://" + here.with_port(name_.port()).text();
    return hello;
}

Result<PeerId> TcpEndpoint::connect(const Address& to, TimePoint now) {
    now_ = now;
    if (to.scheme != scheme_ || (!is_local() && to.port == 0)) {
        return fail(Code::invalid_argument, std::string(scheme_) + " can't connect to " + to.uri() +
                                                "; use " + form() +
                                                (is_local() ? "" : " with a port"));
    }
    Slot* slot = take_slot();
    if (!slot) {
        return fail(Code::resource_exhausted, "connecting to " + to.uri() + ": all of the " +
                                                  std::to_string(parts_.peers_max) +
                                                  " peers_max are in use");
    }
    Connection& connection = *slot->connection;
    const PeerId id = connection.id;
    connection.info.uri = to.uri();
    connection.deadline = now + handshake_max;
    ++handshakes_;
    look_now_ = true;
    if (const auto name = is_local() ? SocketName::from_path(to.name) : numeric_name(to)) {
        connection.name = *name;
        enter(connection);
    } else {
        connection.phase = Phase::resolving;
        connection.resolution =
            Resolution::start(to, now, parts_.resolver ? *parts_.resolver : Resolver::system());
    }
    return id;
}

static Duration handshake_time(const Connection& connection) {
    return connection.alternatives ? connection.alternatives->time(handshake_max) : handshake_max;
}

// For people: the address that is tried, where the host has several.
static std::string place_of(const Connection& connection) {
    return connection.alternatives ? connection.name.text() : connection.info.uri;
}

// Waits for its turn, and then for the listener.
void TcpEndpoint::enter(Connection& connection) {
    connection.has_turn = pacer_.enter(connection.info.uri, connection.id);
    if (connection.has_turn) start(connection);
}

void TcpEndpoint::give_turns() {
    while (pacer_.has_turns()) {
        const ConnectPacer::Turn turn = pacer_.next();
        Connection* connection = find(turn.peer);
        if (!connection || connection->phase != Phase::waiting) {
            pacer_.leave(turn.to);
            continue;
        }
        connection->has_turn = true;
        // A listener is there: each connect has its own time to reach it. Where it is silent now,
        // those that waited have waited long enough.
        const bool is_there = pacer_.answered_at(turn.to) != TimePoint::min();
        if (is_there) connection->deadline = now_ + handshake_time(*connection);
        start(*connection);
    }
}

void TcpEndpoint::start(Connection& connection) {
    if (connection.phase == Phase::waiting) connection.move_to(Phase::connecting);
    connection.since = now_;
    // A path without a listener is refused at once.
    if (is_local()) connection.deadline = never;
    Result<base::UniqueFd> socket = start_connecting(connection.name);
    if (socket && !*socket) {  // The listener's queue is full.
        connection.retry_at = now_ + ConnectPacer::pause(++connection.attempts, parts_.random);
        return;
    }
    if (!socket) {
        return fail_to_connect(connection, socket.status().code(),
                               place_of(connection) + ": " + std::string(socket.status().text()));
    }
    connection.talk.socket = *std::move(socket);
    if (!watch(connection.talk, true)) {
        take_down(connection, Code::resource_exhausted, connection.info.uri + ": epoll is full");
    }
}

// Back to before its socket.
void TcpEndpoint::start_over(Connection& connection) {
    close_lane(connection.talk);
    connection.greeting = {};
    if (connection.phase != Phase::waiting) connection.move_to(Phase::waiting);
    connection.deadline = now_ + handshake_time(connection);
}

// An address of the host leads nowhere: the next is tried, if there is one. `silent`: it had no
// answer.
void TcpEndpoint::fail_to_connect(Connection& connection, Code code, std::string why, bool silent) {
    if (connection.alternatives && code == Code::unavailable) {
        if (connection.alternatives->next(why, silent)) {
            connection.name = connection.alternatives->name();
            start_over(connection);
            connection.hang_ups.clear();
            connection.retry_at = now_;
            look_now_ = true;
            return;
        }
        why = connection.info.uri + ": " + connection.alternatives->told();
    }
    if (silent) pacer_.unanswered(connection.info.uri, connection.since);
    take_down(connection, code, std::move(why));
}

// The listener is there and has no place for us now.
void TcpEndpoint::try_again(Connection& connection, std::string why) {
    pacer_.refused(connection.info.uri, std::move(why));
    start_over(connection);
    pacer_.answered(connection.info.uri, now_);
    connection.deadline = now_ + handshake_max;
    connection.retry_at = now_ + ConnectPacer::pause(++connection.attempts, parts_.random);
}

void TcpEndpoint::end_handshake(Connection& connection) {
    --handshakes_;
    if (std::exchange(connection.has_turn, false)) pacer_.leave(connection.info.uri);
    if (pacer_.has_turns()) look_now_ = true;
}

// The kernel had no answer from the host.
static bool is_silence(int error) {
    return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
           error == EHOSTDOWN || error == ENETDOWN;
}

void TcpEndpoint::on_connected(Connection& connection) {
    const std::string& uri = connection.info.uri;
    const std::string place = place_of(connection);
    const int error = socket_error(connection.talk.socket.get());
    if (error != 0 && error != ECONNRESET && error != EPIPE) {
        return fail_to_connect(connection, Code::unavailable,
                               error == ECONNREFUSED
                                   ? "nothing listens at " + place + " (connection refused)"
                                   : "connecting to " + place + ": " + std::strerror(error),
                               is_silence(error));
    }
    use_plain_congestion_control(connection.talk.socket.get());
    want_room(connection.talk, false);
    // From here on its kernel says when the process or the host is gone.
    if (!is_local()) set_greeting_options(connection.talk.socket.get());
    pacer_.answered(uri, now_);
    connection.since = now_;
    connection.deadline = never;
    std::byte frame[greeting_bytes_max];
    const std::size_t bytes = encode_hello(hello(connection.talk.socket.get()), frame);
    connection.move_to(Phase::greeting);
    if (error == 0 && send_greeting(connection.talk.socket.get(), {frame, bytes})) return;
    read_welcome(connection);  // A refusal that came before is there.
    if (connection.phase == Phase::greeting) on_hang_up(connection);
}

// A listener that hangs up without a word may have had no place for us, too.
void TcpEndpoint::on_hang_up(Connection& connection) {
    std::string why = place_of(connection) +
                      " hung up during the handshake: it ends, has no file descriptor left "
                      "(ulimit -n of its process), or does not speak weft";
    if (connection.hang_ups.may_try_again(now_)) return try_again(connection, std::move(why));
    fail_to_connect(connection, Code::unavailable, std::move(why));
}

void TcpEndpoint::read_welcome(Connection& connection) {
    const std::string& uri = connection.info.uri;
    switch (connection.greeting.read(connection.talk.socket.get())) {
        case Greeting::Read::more: return;
        case Greeting::Read::whole: break;
        case Greeting::Read::gone:
            if (!is_silence(connection.greeting.error())) return on_hang_up(connection);
            return fail_to_connect(connection, Code::unavailable,
                                   "lost " + place_of(connection) + " during the handshake: " +
                                       std::strerror(connection.greeting.error()),
                                   true);
        case Greeting::Read::garbage:
            return take_down(connection, Code::data_loss,
                             uri + " does not speak weft over tcp (garbage for a greeting)");
    }
    Result<Welcome> welcome = decode_welcome(connection.greeting.frame());
    if (!welcome) {
        std::string why = uri + ": " + std::string(welcome.status().text());
        if (!may_be_tried_again(welcome.status().code())) {
            return take_down(connection, welcome.status().code(), std::move(why));
        }
        connection.hang_ups.clear();
        return try_again(connection, std::move(why));
    }
    connection.ticket = welcome->ticket;
    take_hello(connection.info, welcome->hello, limits_);
    go_up(connection);
}

void TcpEndpoint::go_up(Connection& connection) {
    if (connection.has_turn) {
        if (!is_local()) set_lasting_options(connection.talk.socket.get());
        pacer_.answered(connection.info.uri, now_);
    }
    end_handshake(connection);
    connection.deadline = never;
    connection.move_to(Phase::up);
    Notice notice;
    notice.event.kind = EventKind::peer_up;
    notice.event.peer = connection.id;
    notice.event.incoming = connection.incoming;
    notify(std::move(notice));
}

void TcpEndpoint::serve_handshakes() {
    while (!strangers_.empty() && strangers_.front()->deadline <= now_) {
        refuse(*strangers_.front(), fail(Code::deadline_exceeded, "the handshake took too long"));
    }
    give_turns();
    if (handshakes_ == 0) return;
    for (const Slot& slot : slots_) {
        Connection* connection = slot.connection.get();
        if (!connection) continue;
        if (connection->phase == Phase::up && connection->bulk) serve_bulk_handshake(*connection);
        if (connection->phase < Phase::up) serve_handshake(*connection);
    }
    give_turns();
}

void TcpEndpoint::serve_handshake(Connection& connection) {
    // Those before it find out whether anything is there.
    if (connection.phase == Phase::waiting && !connection.has_turn) return;
    if (connection.phase == Phase::resolving && connection.resolution->done()) {
        Result<std::vector<SocketName>> names = connection.resolution->answers();
        connection.resolution.reset();
        if (!names) {
            return take_down(connection, Code::unavailable, std::string(names.status().text()));
        }
        connection.name = names->front();
        if (names->size() > 1) {
            connection.alternatives = std::make_unique<Alternatives>(*names);
            connection.deadline = now_ + handshake_time(connection);
        }
        connection.move_to(Phase::waiting);
        enter(connection);
    } else if (connection.deadline <= now_) {
        fail_to_connect(connection, Code::unavailable,
                        place_of(connection) + " did not answer in time", true);
    } else if (connection.phase <= Phase::connecting && connection.retry_at <= now_) {
        connection.retry_at = never;
        start(connection);
    }
}

// Our own thread did not look for so long: the answers may be there.
void TcpEndpoint::forgive(Duration stall) {
    if (handshakes_ == 0 && strangers_.empty()) return;
    const TimePoint latest = now_ + handshake_max;
    for (const auto& stranger : strangers_) {
        stranger->deadline = postponed(stranger->deadline, stall, latest);
    }
    for (const Slot& slot : slots_) {
        Connection* connection = slot.connection.get();
        if (!connection) continue;
        connection->deadline = postponed(connection->deadline, stall, latest);
        connection->hang_ups.postpone(stall, now_);
        if (!connection->bulk) continue;
        Bulk& bulk = *connection->bulk;
        bulk.deadline = postponed(bulk.deadline, stall, latest);
        bulk.hang_ups.postpone(stall, now_);
    }
}

TimePoint TcpEndpoint::next_deadline() const {
    TimePoint next = admission_.next_deadline();
    if (!strangers_.empty()) next = std::min(next, strangers_.front()->deadline);
    if (!strangers_.empty()) next = std::min(next, looked_at_ + handshake_look_every);
    if (handshakes_ == 0) return next;
    if (pacer_.has_turns()) return now_;
    for (const Slot& slot : slots_) {
        const Connection* connection = slot.connection.get();
        if (!connection) continue;
        const bool wants_bulk = connection->bulk && connection->bulk->phase == BulkPhase::wanted;
        const bool waits_for_us =
            connection->phase == Phase::resolving || (wants_bulk && connection->incoming);
        if (waits_for_us) next = std::min(next, now_ + 1ms);
        if (wants_bulk && !connection->incoming) next = std::min(next, connection->bulk->retry_at);
        const bool has_time = connection->phase == Phase::resolving || connection->has_turn;
        if (has_time) next = std::min({next, connection->deadline, connection->retry_at});
        if (connection->bulk) next = std::min(next, connection->bulk->deadline);
    }
    return next == never ? never : std::min(next, looked_at_ + handshake_look_every);
}

TcpEndpoint::Slot* TcpEndpoint::take_slot() {
    if (slots_.size() - free_slots_.size() >= parts_.peers_max) return nullptr;
    if (free_slots_.empty()) {
        free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
        slots_.emplace_back();
        free_slots_.reserve(slots_.size());
    }
    const std::uint32_t index = free_slots_.back();
    free_slots_.pop_back();
    Slot& slot = slots_[index];
    slot.connection = std::make_unique<Connection>();
    slot.connection->id = {index, slot.generation};
    slot.connection->talk.connection = slot.connection.get();
    return &slot;
}

void TcpEndpoint::release(PeerId peer) {
    Slot& slot = slots_[peer.index];
    if (++slot.generation == 0) slot.generation = 1;
    slot.connection.reset();
    free_slots_.push_back(peer.index);
}

}  // namespace weft::na::tcp
