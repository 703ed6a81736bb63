// Accepting: strangers, until they are known or refused.
#include <sys/socket.h>

#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "na/tcp/endpoint.h"

namespace weft::na::tcp {
namespace {

// Strangers, which are not identified yet. The oldest gives way to the next once it was silent
// for so long; until then the next ones wait in the listener's queue.
constexpr std::size_t strangers_max = 64;
constexpr Duration silent_max = 5ms;
constexpr int accepts_per_look = 16;

}  // namespace

void TcpEndpoint::accept_some() {
    for (int i = 0; i < accepts_per_look; ++i) {
        if (strangers_.size() >= strangers_max && !make_room()) return;
        base::UniqueFd socket = admission_.accept(now_, parts_.log, address());
        if (!socket) return;
        set_accepted_options(socket.get());
        strangers_.push_back(std::make_unique<Stranger>());
        Stranger& stranger = *strangers_.back();
        stranger.lane.kind = Lane::Kind::stranger;
        stranger.lane.stranger = &stranger;
        stranger.lane.socket = std::move(socket);
        stranger.since = now_;
        stranger.deadline = now_ + handshake_max;
        if (!watch(stranger.lane, false)) {
            return refuse(stranger, fail(busy_code, "epoll takes no more descriptors"));
        }
        read_stranger(stranger);  // Mostly it is there already.
    }
}

// False: all of them have come just now.
bool TcpEndpoint::make_room() {
    Stranger& oldest = *strangers_.front();
    if (now_ - oldest.since < silent_max) {
        admission_.rest_until(oldest.since + silent_max);
        return false;
    }
    refuse(oldest, fail(busy_code, "too many unfinished handshakes"));
    return true;
}

void TcpEndpoint::read_stranger(Stranger& stranger) {
    switch (stranger.greeting.read(stranger.lane.socket.get())) {
        case Greeting::Read::more: return;
        case Greeting::Read::whole: break;
        case Greeting::Read::gone: drop(stranger); return;
        case Greeting::Read::garbage:
            return refuse(stranger, fail(Code::data_loss, "not a greeting of weft over tcp"));
    }
    const ByteView frame = stranger.greeting.frame();
    const bool joins =
        base::load<StreamHead>(frame.data()).kind == static_cast<std::uint8_t>(Signal::join);
    Status status;
    if (joins) {
        const Result<Ticket> ticket = decode_join(frame);
        status = ticket ? join(stranger, *ticket) : ticket.status();
    } else {
        const Result<Hello> theirs = decode_hello_frame(frame);
        status = theirs ? welcome(stranger, *theirs) : theirs.status();
    }
    if (!status.ok()) refuse(stranger, status);
}

// Gives an incoming peer a slot and answers it. It may use everything as soon as it has the answer.
Status TcpEndpoint::welcome(Stranger& stranger, const Hello& theirs) {
    Slot* slot = take_slot();
    if (!slot) {
        return fail(Code::resource_exhausted,
                    "all of the " + std::to_string(parts_.peers_max) + " peers_max are in use");
    }
    Connection& connection = *slot->connection;
    const PeerId id = connection.id;
    connection.incoming = true;
    connection.phase = Phase::greeting;  // Where it begins.
    connection.info.uri = theirs.uri.empty() ? "an unnamed peer" : theirs.uri;
    take_hello(connection.info, theirs, limits_);
    connection.ticket = {parts_.random.next(), parts_.random.next()};
    std::byte frame[greeting_bytes_max];
    const std::size_t bytes =
        encode_welcome(connection.ticket, hello(stranger.lane.socket.get()), frame);
    if (!send_greeting(stranger.lane.socket.get(), {frame, bytes})) {
        release(id);
        return fail(Code::unavailable, "it hung up during the handshake");
    }
    hand_over(stranger.lane, connection.talk);
    drop(stranger);
    ++handshakes_;
    go_up(connection);
    return {};
}

void TcpEndpoint::refuse(Stranger& stranger, const Status& why) {
    parts_.log.write_of_peer(LogLevel::info, now_,
                             "refused a connection to " + address() + ": " + why.to_string());
    send_refusal(stranger.lane.socket.get(), why);
    drop(stranger);
}

void TcpEndpoint::drop(Stranger& stranger) {
    close_lane(stranger.lane);
    std::erase_if(strangers_, [&](const auto& one) { return one.get() == &stranger; });
    admission_.resume();
}

}  // namespace weft::na::tcp
