// Opening and connecting, and the poll of the sockets.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/own_descriptor.h"
#include "base/random.h"
#include "na/arena.h"
#include "na/common/no_room.h"
#include "na/own_stall.h"
#include "na/sm/endpoint.h"

namespace weft::na::sm {
namespace {

constexpr Duration control_every = 5ms;
constexpr int events_per_poll = 64;
constexpr std::uint64_t listener_serial = 0;

}  // namespace

SmEndpoint::SmEndpoint(std::shared_ptr<ArenaViews> arenas, EndpointParts parts, TimePoint now)
    : parts_(std::move(parts)), owner_(::getpid()), arenas_(std::move(arenas)) {
    control_.now = control_.last = control_.at = now;
    received_.memory.reset(new std::byte[received_bytes_max]);
    sends_.draft.reset(new std::byte[sm::message_bytes_max]);
    incoming_.reserve(incoming_max);
    limits_.message_bytes_max = sm::message_bytes_max;
    limits_.eager_bytes_max = sm::eager_bytes_max;
    limits_.rma_bytes_max = sm::rma_bytes_max;
    limits_.rma_depth = sm::rma_depth;
    limits_.rma_per_peer_max = sm::rma_depth;  // Transfers are local copies, independent of a peer.
    limits_.peers_max = static_cast<std::uint32_t>(parts_.peers_max);
}

Result<std::unique_ptr<Endpoint>> SmEndpoint::open(std::shared_ptr<ArenaViews> arenas,
                                                   const Address* listen, EndpointParts parts,
                                                   TimePoint now) {
    std::unique_ptr<SmEndpoint> endpoint(new SmEndpoint(std::move(arenas), std::move(parts), now));
    endpoint->epoll_ =
        base::UniqueFd::close_on_fork([&] { return ::epoll_create1(EPOLL_CLOEXEC); });
    if (!endpoint->epoll_)
        return fail(Code::resource_exhausted, errno_text("sm: epoll_create1") + " (ulimit -n)");
    Result<RegionTable> table = RegionTable::make(endpoint->parts_.random.next());
    if (!table) return std::move(table).status().in("sm");
    endpoint->table_ = std::move(*table);
    if (listen) {
        DoorParts alone;
        alone.peers_max = endpoint->limits_.peers_max;
        Result<std::shared_ptr<SmDoor>> door = SmDoor::open(*listen, std::move(alone));
        if (!door) return std::move(door).status();
        endpoint->listener_.door = *std::move(door);
    } else if (endpoint->parts_.door) {
        endpoint->listener_.door = std::static_pointer_cast<SmDoor>(endpoint->parts_.door);
    }
    if (Status status = endpoint->listen(); !status.ok()) return status;
    return std::unique_ptr<Endpoint>(std::move(endpoint));
}

SmEndpoint::~SmEndpoint() {
    if (listener_.door) listener_.door->leave(parts_.context);
    if (::getpid() != owner_) {  // A forked child: everything belongs to the parent.
        if (listener_.door) listener_.door->abandon();
        return;
    }
    flush();
    if (is_read_) parts_.exposures->remove_reader(*this);
    for (std::uint32_t region = 0; region < fences_.regions_used; ++region) table_.revoke(region);
    peers_.for_each([](const Connection& connection) {
        if (connection.phase == PeerPhase::up) send_bye(connection.socket.get());
    });
}

std::string SmEndpoint::address() const {
    return listener_.door ? "sm://" + listener_.door->name() : std::string();
}

FilesToSend SmEndpoint::own_files() {
    // Before a peer reads the table, it has the regions of the other contexts.
    if (parts_.exposures && !std::exchange(is_read_, true))
        parts_.exposures->add_reader(parts_.context, *this);
    FilesToSend files;
    files.regions = table_.file();
    // Without an arena only private memory can be exposed, for which peers need no descriptor.
    if (Result<int> arena = parts_.arena.fd(); arena) files.arena = *arena;
    return files;
}

Result<PeerId> SmEndpoint::connect(const Address& to, TimePoint now) {
    control_.now = now;
    if (to.scheme != "sm" || to.name.empty()) {
        return fail(Code::invalid_argument, "sm can't connect to " + to.uri() + "; use sm://name");
    }
    if (!has_slot()) return at_peers_max(to, parts_.peers_max);
    Connection* const added = peers_.try_add();
    if (!added) return without_memory(to);
    Connection& connection = *added;
    connection.target.name = to.name;
    connection.target.wanted = to.wanted;
    connection.info.uri = to.uri();
    ++handshakes_;
    if (connection.connect.take_slot(pacer_, to.name, connection.id))
        start_attempt(connection, now);
    return connection.id;
}

const PeerInfo* SmEndpoint::info(PeerId peer) const {
    const Connection* connection = peers_.find(peer);
    if (!connection) return nullptr;
    const bool known = connection->phase == PeerPhase::up || connection->phase == PeerPhase::ending;
    return known ? &connection->info : nullptr;
}

std::string SmEndpoint::why_waiting(PeerId peer) const {
    const Connection* connection = peers_.find(peer);
    return connection ? pacer_.why_waiting(connection->target.name) : std::string();
}

void SmEndpoint::close(PeerId peer) {
    Connection* connection = peers_.find(peer);
    if (!connection) return;
    transfers_.queue.drop(*connection, Code::cancelled, "the connection was closed");
    if (std::exchange(connection->unpublished, false)) publish(*connection);
    if (connection->phase == PeerPhase::up) send_bye(connection->socket.get());
    if (connection->phase != PeerPhase::down) end(*connection);
    retire(peers_.remove(peer));
}

void SmEndpoint::start_paced_connects(TimePoint now) {
    while (pacer_.has_started()) {
        const ConnectPacer::Started turn = pacer_.next();
        Connection* connection = peers_.find(turn.peer);
        if (connection && connection->phase == PeerPhase::waiting) {
            connection->connect.start_turn();
            start_attempt(*connection, now);
        } else {
            pacer_.release(turn.to);
        }
    }
}

void SmEndpoint::end_handshake(Connection& connection) {
    WEFT_ASSERT(handshakes_ != 0);
    --handshakes_;
    leave_pacer(connection);
}

void SmEndpoint::leave_pacer(Connection& connection) {
    connection.connect.leave(pacer_, connection.target.name);
    if (!pacer_.has_started()) return;
    control_.at = TimePoint::min();
    request_full_poll();
}

// The server exists, but it or the kernel has no room for this connection now.
void SmEndpoint::retry_later(Connection& connection, TimePoint now) {
    abort_attempt(connection);
    if (connection.phase != PeerPhase::waiting) connection.move_to(PeerPhase::waiting);
    connection.connect.back_off(now, parts_.random);
}

// Resets an attempt without an accepted hello: the server accesses none of its memory.
void SmEndpoint::abort_attempt(Connection& connection) {
    unwatch_socket(connection);
    connection.socket.reset();
    connection.segment = Segment();
    connection.reader = RingReader();
    connection.writer = RingWriter();
    connection.regions = RegionView();
    connection.arena.reset();
}

// One attempt. It has no time limit: if the server's process ends, the socket reports that.
void SmEndpoint::start_attempt(Connection& connection, TimePoint now) {
    WEFT_ASSERT(connection.connect.has_slot && !connection.segment);
    const std::string& uri = connection.info.uri;
    Result<std::string> directory = names_directory();
    if (!directory) {
        return take_down(connection, directory.status().code(),
                         uri + ": " + std::string(directory.status().text()));
    }
    Result<sockaddr_un> address = socket_address(*directory, connection.target.name + ".sock");
    if (!address) {
        return take_down(connection, address.status().code(), std::string(address.status().text()));
    }
    connection.socket = base::UniqueFd::close_on_fork(
        [&] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (!connection.socket) {
        return take_down(connection, Code::resource_exhausted, errno_text(uri + ": socket"));
    }
    if (::connect(connection.socket.get(), reinterpret_cast<const sockaddr*>(&*address),
                  sizeof *address) == 0) {
        return start_handshake(connection);
    }
    if (errno == EAGAIN || errno == EINTR) return retry_later(connection, now);
    const bool is_absent = errno == ENOENT || errno == ECONNREFUSED;
    take_down(connection, Code::unavailable,
              is_absent ? "nothing listens at " + uri + " (no socket " + address->sun_path + ")"
                        : errno_text("connecting to " + uri));
}

void SmEndpoint::start_handshake(Connection& connection) {
    const std::string& uri = connection.info.uri;
    connection.connect.retry_at = never;
    if (Status status = validate_credentials(connection.socket.get()); !status.ok()) {
        return take_down(connection, status.code(), uri + ": " + std::string(status.text()));
    }
    base::UniqueFd rings;
    Result<Segment> segment = Segment::make(&rings);
    if (!segment) {
        return take_down(connection, segment.status().code(),
                         uri + ": " + std::string(segment.status().text()));
    }
    connection.segment = std::move(*segment);
    connection.side = Side::connector;
    connection.reader = connection.segment.reader(connection.side);
    connection.writer = connection.segment.writer(connection.side);
    FilesToSend files = own_files();
    files.rings = rings.get();
    if (!watch_socket(connection)) {
        abort_attempt(connection);
        return take_down(connection, Code::resource_exhausted,
                         uri + ": epoll takes no more descriptors (fs.epoll.max_user_watches)");
    }
    connection.move_to(PeerPhase::handshaking);
    Hello own = hello();
    own.wanted = connection.target.wanted;
    const Status status = send_hello(connection.socket.get(), own, files);
    if (status.ok()) return;
    if (status.code() == busy_code) {
        pacer_.on_refused(connection.target.name, std::string(status.text()));
        return retry_later(connection, control_.now);
    }
    on_hello(connection);  // A refusal may have arrived before.
    if (connection.phase == PeerPhase::handshaking) on_refusal(connection, status, true);
}

bool SmEndpoint::watch_socket(Connection& connection) {
    WEFT_ASSERT(connection.socket && connection.serial == 0);
    connection.serial = ++sockets_.serials;
    sockets_.by_serial[connection.serial] = &connection;
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    wanted.data.u64 = connection.serial;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.socket.get(), &wanted) == 0;
}

void SmEndpoint::unwatch_socket(Connection& connection) {
    if (connection.serial == 0) return;
    sockets_.by_serial.erase(connection.serial);
    connection.serial = 0;
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
}

void SmEndpoint::control(TimePoint now) {
    const Duration stall = own_stall(now - std::exchange(control_.last, now));
    if (stall > Duration::zero()) extend_deadlines(stall);
    control_.at = now + control_every;
    if (control_.armed) {
        control_.armed = false;
        table_.end_sleep();
    }
    epoll_event ready[events_per_poll];
    const int count = base::check_open(::epoll_wait(epoll_.get(), ready, events_per_poll, 0));
    for (int i = 0; i < count; ++i) {
        const std::uint64_t serial = ready[i].data.u64;  // No reference: epoll_event is packed.
        if (serial == listener_serial) {
            accept_some(now);
        } else if (const auto at = sockets_.by_serial.find(serial);
                   at != sockets_.by_serial.end()) {
            on_socket_ready(*at->second);  // Else an earlier event ended the connection.
        }
    }
    start_paced_connects(now);
    if (handshakes_ != 0) expire_handshakes(now);
    start_paced_connects(now);
    listener_.acceptor.serve(now);
}

// This thread did not poll for `stall`: answers may lie unread.
void SmEndpoint::extend_deadlines(Duration stall) {
    if (handshakes_ == 0) return;
    for (const auto& connection : incoming_) {
        connection->connect.deadline =
            postponed(connection->connect.deadline, stall, control_.last + handshake_max);
    }
    peers_.for_each([&](Connection& connection) {
        connection.connect.hang_ups.postpone(stall, control_.last);
    });
}

void SmEndpoint::on_socket_ready(Connection& connection) {
    if (connection.phase == PeerPhase::handshaking) return on_hello(connection);
    Status status = receive_wakes(connection.socket.get());
    if (status.ok()) {
        if (connection.phase == PeerPhase::up) watched_.activate(connection);
        return;
    }
    connection.end.peer_gone = true;
    unwatch_socket(connection);
    if (connection.phase == PeerPhase::up) {
        connection.move_to(PeerPhase::ending);
        ++ending_;
        request_full_poll();
        connection.reader.freeze(connection.end.final_tail);
        transfers_.queue.drop(connection, Code::unavailable, "the peer has disconnected");
        connection.end.reason = status.text();
    } else if (connection.phase == PeerPhase::retired) {
        erase_retired(connection);
    }
}

void SmEndpoint::on_hello(Connection& connection) {
    bool hung_up = false;
    Result<std::optional<HelloPacket>> hello_packet =
        receive_hello(connection.socket.get(), &hung_up);
    if (hello_packet && !*hello_packet) return;
    if (hello_packet && (*hello_packet)->is_passed) {
        if (connection.connect.has_slot) {
            leave_pacer(connection);
            return on_hello(connection);
        }
        hello_packet =
            fail(Code::data_loss, "the peer has sent an unexpected packet in the handshake");
    }
    if (connection.side == Side::acceptor) return on_incoming(connection, std::move(hello_packet));
    Status status = hello_packet ? validate_hello(connection, std::move(**hello_packet))
                                 : std::move(hello_packet).status();
    if (status.ok()) return bring_up(connection);
    on_refusal(connection, status, hung_up);
}

// A listener that closes without a refusal may lack room, too: the attempt is repeated.
void SmEndpoint::on_refusal(Connection& connection, const Status& why, bool hung_up) {
    if (!hung_up) connection.connect.hang_ups.clear();
    const bool again =
        hung_up ? connection.connect.hang_ups.may_retry(control_.now) : is_retryable(why.code());
    std::string text = connection.info.uri + ": " + std::string(why.text());
    if (again) {
        connection.connect.lets_others_go = !hung_up;
        pacer_.on_refused(connection.target.name, std::move(text));
        return retry_later(connection, control_.now);
    }
    if (hung_up) abort_attempt(connection);
    take_down(connection, why.code(), std::move(text));
}

// Validates and maps the peer's files; changes only the connection.
Status SmEndpoint::validate_hello(Connection& connection, HelloPacket hello_packet) {
    Files& files = hello_packet.files;
    const bool acceptor = connection.side == Side::acceptor;
    if (!files.regions || bool(files.rings) != acceptor) {
        return fail(Code::data_loss, "the handshake has other descriptors than expected");
    }
    Result<RegionView> regions = RegionView::attach(files.regions.get());
    if (!regions) return std::move(regions).status();
    connection.regions = std::move(*regions);
    if (files.arena) {
        Result<std::shared_ptr<ArenaView>> arena = arenas_->open(std::move(files.arena));
        if (!arena) return std::move(arena).status();
        connection.arena = std::move(*arena);
    }
    if (acceptor) {
        Result<Segment> segment = Segment::attach(files.rings.get());
        if (!segment) return std::move(segment).status();
        connection.segment = std::move(*segment);
        connection.reader = connection.segment.reader(connection.side);
        connection.writer = connection.segment.writer(connection.side);
        if (!hello_packet.hello.uri.empty()) connection.info.uri = hello_packet.hello.uri;
    }
    apply_hello(connection.info, hello_packet.hello, limits_);
    return {};
}

void SmEndpoint::bring_up(Connection& connection) {
    WEFT_ASSERT(connection.segment && connection.socket);
    end_handshake(connection);
    connection.move_to(PeerPhase::up);
    connection.connect.deadline = never;
    watched_.add(connection);
    events_.waiting.push(up_event(connection.id, connection.side == Side::acceptor));
    request_full_poll();
}

void SmEndpoint::expire_handshakes(TimePoint now) {
    while (!incoming_.empty() && incoming_.front()->connect.deadline <= now) {
        refuse_incoming(*incoming_.front(),
                        fail(Code::deadline_exceeded, "the handshake took too long"));
    }
    peers_.for_each([&](Connection& connection) {
        if (connection.phase != PeerPhase::waiting || connection.connect.retry_at > now) return;
        if (connection.connect.take_slot(pacer_, connection.target.name, connection.id))
            start_attempt(connection, now);
    });
}

TimePoint SmEndpoint::next_deadline() const {
    if (!fences_.order.empty()) return control_.now + 1ms;
    TimePoint next = listener_.acceptor.next_deadline();
    if (handshakes_ == 0) return next;
    if (pacer_.has_started()) return control_.now;
    for (const auto& connection : incoming_) next = std::min(next, connection->connect.deadline);
    if (!incoming_.empty()) next = std::min(next, control_.last + handshake_poll_interval);
    peers_.for_each([&next](const Connection& connection) {
        if (connection.phase < PeerPhase::up) next = std::min(next, connection.connect.retry_at);
    });
    return next;
}

}  // namespace weft::na::sm
