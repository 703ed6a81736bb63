// The frame that opens a lane, and the one that answers it.
#pragma once

#include "na/tcp/wire.h"

namespace weft::na::tcp {

// Read to its end and no further: what follows belongs to the lane.
class Greeting {
  public:
    enum class Read : std::uint8_t { more, whole, gone, garbage };
    Read read(int socket) noexcept;
    // Requires: it is whole.
    ByteView frame() const;
    // Of a peer that is gone: the errno, or 0 when the stream ended.
    int error() const { return error_; }

  private:
    std::byte bytes_[greeting_bytes_max];
    std::size_t have_ = 0;
    int error_ = 0;
};

// Requires: the peer is not served. What it sent is dropped, else the end of the socket would be a
// reset, which may outrun the refusal.
void send_refusal(int socket, const Status& why);

// False: not all of it left, which at the start of a connection means that it is gone.
bool send_greeting(int socket, ByteView frame) noexcept;

}  // namespace weft::na::tcp
