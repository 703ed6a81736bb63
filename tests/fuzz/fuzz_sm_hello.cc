// The packets that open a connection over sm, with any descriptors attached.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "na/sm/handshake.h"

using namespace weft;
using namespace weft::na::sm;
using fuzz::must;

namespace {

constexpr std::size_t files_most = 8;

struct Ends {
    base::UniqueFd ours, theirs;
    Ends() {
        int ends[2];
        must(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "a socket pair");
        ours.reset(ends[0]);
        theirs.reset(ends[1]);
    }
};

void send_packet(int socket, ByteView bytes, std::size_t files) {
    alignas(cmsghdr) char control[CMSG_SPACE(files_most * sizeof(int))] = {};
    iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (files > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(files * sizeof(int));
        cmsghdr* const rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(files * sizeof(int));
        for (std::size_t i = 0; i < files; ++i) {
            std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &socket, sizeof socket);
        }
    }
    must(::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0, "a packet leaves");
}

// The number that the next descriptor gets: the same as before if no descriptor was left open.
int next_descriptor(int any) {
    const base::UniqueFd next(::fcntl(any, F_DUPFD_CLOEXEC, 0));
    return next.get();
}

void check(const Result<std::optional<HelloPacket>>& came, std::size_t files) {
    if (!came) {
        const std::string_view text = came.status().text();
        must(!came.status().ok(), "a refusal is a failure");
        must(text.size() <= 1280, "a refusal's text is bounded");
        must(std::ranges::none_of(
                 text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }),
             "a refusal's text is fit for a log");
        return;
    }
    must(came->has_value(), "the sent packet has arrived");
    const HelloPacket& hello_packet = **came;
    const auto is_there = [](const base::UniqueFd& fd) { return fd ? std::size_t{1} : 0; };
    must(is_there(hello_packet.files.regions) + is_there(hello_packet.files.rings) +
                 is_there(hello_packet.files.arena) ==
             files,
         "every received descriptor was announced");
    must(hello_packet.hello.uri.size() <= 256, "an address is bounded");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Ends ends;
    fuzz::Input input(data, size);
    const std::size_t files = input.byte() % (files_most + 1);
    const ByteView bytes = input.rest();
    const int before = next_descriptor(ends.ours.get());
    send_packet(ends.theirs.get(), bytes, files);
    check(receive_hello(ends.ours.get()), files);
    must(receive_hello(ends.ours.get()).value() == std::nullopt, "one packet was sent");
    must(next_descriptor(ends.ours.get()) == before, "no descriptor is left open");
    return 0;
}
