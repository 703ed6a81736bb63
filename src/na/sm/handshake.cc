#include "na/sm/handshake.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/codec.h"
#include "base/text.h"
#include "na/memory_file.h"

namespace weft::na::sm {
namespace {

constexpr std::uint32_t hello_magic = 0x6d736677;  // "wfsm"
constexpr std::uint16_t layout_version = 0;        // Of rings and tables.
constexpr std::size_t head_bytes = 4 + 2 + 1 + 1;
constexpr std::size_t refusal_text_bytes_max = 256;
constexpr std::size_t packet_bytes_max = head_bytes + hello_bytes_max + refusal_text_bytes_max;
constexpr std::size_t files_max = 3;
constexpr int wakes_per_poll_max = 16;

enum class Kind : std::uint8_t { hello = 1, refusal = 2, passed = 3 };
enum FileBit : std::uint8_t { has_regions = 1, has_rings = 2, has_arena = 4 };

constexpr char wake_byte = 'w';
constexpr char bye_byte = 'b';

void put_head(base::Writer& out, Kind kind, std::uint8_t detail) {
    out.put(hello_magic);
    out.put(layout_version);
    out.put(static_cast<std::uint8_t>(kind));
    out.put(detail);
}

Status garbage(const char* what) {
    return fail(Code::data_loss, std::string("garbage in the handshake: ") + what);
}

struct Packet {
    std::array<std::byte, packet_bytes_max> bytes;
    std::size_t length = 0;
    std::array<base::UniqueFd, files_max> files;
    std::size_t file_count = 0;
    bool cut = false;
    bool files_lost = false;  // This process had no free descriptor for one.
};

// Takes ownership of every descriptor of the message before anything can fail.
void take_files(msghdr& message, Packet& packet, const base::ForkBlocker& held) {
    for (cmsghdr* at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            const auto* const data = reinterpret_cast<const std::byte*>(CMSG_DATA(at));
            auto fd = base::UniqueFd::close_on_fork(base::load<int>(data + i * sizeof(int)), held);
            if (packet.file_count < files_max) {
                packet.files[packet.file_count++] = std::move(fd);
            } else {
                packet.cut = true;
            }
        }
    }
}

// False: no packet has arrived. Errors: UNAVAILABLE, the peer hung up.
Result<bool> receive(int socket, Packet& packet) {
    // One more than allowed, to distinguish a peer's excess from a local lack of descriptors.
    constexpr std::size_t room = files_max + 1;
    alignas(cmsghdr) char control[CMSG_SPACE(room * sizeof(int))];
    iovec vector{packet.bytes.data(), packet.bytes.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const base::ForkBlocker held;
    ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // A reset is reported once, before the packets that the peer sent ahead of it.
    if (got < 0 && errno == ECONNRESET) {
        got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got >= 0) take_files(message, packet, held);
    if (got <= 0) {
        return fail(Code::unavailable,
                    "the peer hung up during the handshake: it ends, or has no file descriptor "
                    "left (ulimit -n of its process)");
    }
    packet.length = static_cast<std::size_t>(got);
    packet.cut |= (message.msg_flags & MSG_TRUNC) != 0;
    packet.files_lost = !packet.cut && (message.msg_flags & MSG_CTRUNC) != 0;
    return true;
}

Result<HelloPacket> decode(Packet& packet) {
    if (packet.cut) return garbage("oversized packet");
    if (packet.files_lost) {
        return fail(Code::resource_exhausted, "no file descriptor left (ulimit -n)");
    }
    base::Reader in(ByteView(packet.bytes).first(packet.length));
    if (in.take<std::uint32_t>() != hello_magic) return garbage("bad magic");
    const auto version = in.take<std::uint16_t>();
    const auto kind = static_cast<Kind>(in.take<std::uint8_t>());
    const auto detail = in.take<std::uint8_t>();
    if (!in.ok()) return garbage("truncated packet");
    if (kind == Kind::refusal) {
        const std::string_view text = in.take_text().substr(0, refusal_text_bytes_max);
        return fail(code_of_refusal(detail), "refused by the server: " + base::printable(text));
    }
    HelloPacket hello_packet;
    hello_packet.is_passed = kind == Kind::passed && packet.file_count == 0;
    if (hello_packet.is_passed) return hello_packet;
    if (kind != Kind::hello) return garbage("unknown packet");
    if (version != layout_version) {
        return fail(Code::failed_precondition, "the peer uses shared memory layout " +
                                                   std::to_string(version) + ", this is " +
                                                   std::to_string(layout_version));
    }
    Result<Hello> hello = decode_hello(in.take_bytes(in.remaining()));
    if (!hello) return std::move(hello).status();
    hello_packet.hello = std::move(*hello);
    std::size_t next = 0;
    const auto take = [&](FileBit bit, base::UniqueFd& into) {
        if ((detail & bit) != 0 && next < packet.file_count) into = std::move(packet.files[next++]);
        return (detail & bit) == 0 || bool(into);
    };
    if (!take(has_regions, hello_packet.files.regions) ||
        !take(has_rings, hello_packet.files.rings) || !take(has_arena, hello_packet.files.arena) ||
        next != packet.file_count) {
        return garbage("descriptors missing or too many");
    }
    return hello_packet;
}

}  // namespace

Status send_hello(int socket, const Hello& hello, const FilesToSend& files) {
    std::array<std::byte, packet_bytes_max> bytes;
    std::uint8_t bits = 0;
    int sent[files_max];
    std::size_t count = 0;
    const auto add = [&](int fd, FileBit bit) {
        if (fd < 0) return;
        bits = static_cast<std::uint8_t>(bits | bit);
        sent[count++] = fd;
    };
    add(files.regions, has_regions);
    add(files.rings, has_rings);
    add(files.arena, has_arena);
    base::Writer out(bytes);
    put_head(out, Kind::hello, bits);
    const std::size_t length = head_bytes + encode(hello, Bytes(bytes).subspan(head_bytes));

    alignas(cmsghdr) char control[CMSG_SPACE(files_max * sizeof(int))] = {};
    iovec vector{bytes.data(), length};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(rights), sent, count * sizeof(int));
    if (::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return {};
    if (errno == ETOOMANYREFS) {
        return fail(busy_code,
                    "this user's processes have too many descriptors under way, sent and not "
                    "received yet (ulimit -n)");
    }
    const bool no_place = errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM;
    return fail(no_place ? busy_code : Code::unavailable, errno_text("sending the handshake"));
}

void send_passed(int socket) {
    std::array<std::byte, head_bytes> bytes;
    base::Writer out(bytes);
    put_head(out, Kind::passed, 0);
    (void)::send(socket, bytes.data(), out.written(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void send_refusal(int socket, const Status& why) {
    std::array<std::byte, packet_bytes_max> bytes;
    base::Writer out(bytes);
    put_head(out, Kind::refusal, static_cast<std::uint8_t>(why.code()));
    out.put_text(base::truncate_utf8(why.text(), refusal_text_bytes_max));
    std::byte unread;
    (void)::recv(socket, &unread, sizeof unread, MSG_DONTWAIT);
    (void)::send(socket, bytes.data(), out.written(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

Result<std::optional<HelloPacket>> receive_hello(int socket, bool* hung_up) {
    Packet packet;
    Result<bool> came = receive(socket, packet);
    if (hung_up) *hung_up = !came;
    if (!came) return std::move(came).status();
    if (!*came) return std::optional<HelloPacket>();
    Result<HelloPacket> hello_packet = decode(packet);
    if (!hello_packet) return std::move(hello_packet).status();
    return std::optional<HelloPacket>(std::move(*hello_packet));
}

void send_wake(int socket) { (void)::send(socket, &wake_byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL); }

void send_bye(int socket) { (void)::send(socket, &bye_byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL); }

Status receive_wakes(int socket) {
    for (int i = 0; i < wakes_per_poll_max; ++i) {
        char byte = 0;
        // The kernel closes descriptors that were sent along: recv() has no room for them.
        const ssize_t got = ::recv(socket, &byte, 1, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
        if (got == 1 && byte == bye_byte)
            return fail(Code::unavailable, "the peer closed the connection");
        if (got <= 0) return fail(Code::unavailable, "the peer died or dropped the connection");
    }
    return {};
}

Status validate_credentials(int socket) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        return fail(Code::permission_denied, errno_text("reading the peer's credentials"));
    }
    if (peer.uid != ::geteuid()) {
        return fail(Code::permission_denied, "the peer runs as uid " + std::to_string(peer.uid) +
                                                 ", sm serves one user only");
    }
    return {};
}

}  // namespace weft::na::sm
