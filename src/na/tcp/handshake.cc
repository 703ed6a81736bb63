#include "na/tcp/handshake.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/assert.h"

namespace weft::na::tcp {

HandshakeReader::Read HandshakeReader::read(int socket) noexcept {
    while (true) {
        std::size_t wanted = sizeof(StreamHead);
        if (have_ >= sizeof(StreamHead)) {
            const auto head = base::load<StreamHead>(bytes_);
            if (head.kind < first_control || head.bytes < sizeof head ||
                head.bytes > handshake_bytes_max) {
                return Read::garbage;
            }
            wanted = padded(head.bytes);
            if (have_ == wanted) return Read::whole;
        }
        WEFT_ASSERT(have_ < wanted);
        const ssize_t got = ::recv(socket, bytes_ + have_, wanted - have_, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return Read::more;
        if (got <= 0) {
            error_ = got < 0 ? errno : 0;
            return Read::gone;
        }
        have_ += static_cast<std::size_t>(got);
    }
}

ByteView HandshakeReader::frame() const {
    WEFT_ASSERT(have_ >= sizeof(StreamHead));
    return {bytes_, base::load<StreamHead>(bytes_).bytes};
}

void send_refusal(int socket, const Status& why) {
    std::byte frame[handshake_bytes_max];
    (void)::recv(socket, frame, sizeof frame, MSG_DONTWAIT);
    (void)send_handshake(socket, {frame, encode_refusal(why, frame)});
}

bool send_handshake(int socket, ByteView frame) noexcept {
    return ::send(socket, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(frame.size());
}

}  // namespace weft::na::tcp
