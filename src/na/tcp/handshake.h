// The frame that opens a lane, and its answer.
#pragma once

#include "na/tcp/wire.h"

namespace weft::na::tcp {

// Reads one handshake frame and no byte beyond: the rest belongs to the lane.
class HandshakeReader {
  public:
    enum class Read : std::uint8_t { more, whole, gone, garbage };
    Read read(int socket) noexcept;
    // Requires: read() returned whole.
    ByteView frame() const;
    // After `gone`: the errno, or 0 if the stream ended.
    int error() const { return error_; }

  private:
    std::byte bytes_[handshake_bytes_max];
    std::size_t have_ = 0;
    int error_ = 0;
};

// Requires: the connection is closed next. Drops received bytes: closing a socket with unread bytes
// sends a reset, which may overtake the refusal.
void send_refusal(int socket, const Status& why);

// False: not all of it was sent, which at the start of a connection means that it is lost.
bool send_handshake(int socket, ByteView frame) noexcept;

}  // namespace weft::na::tcp
