// The prefix of a libfabric message, in front of core's frames, and the handshake messages.
//
// A libfabric message does not name its sender, and a process that took over the address of a dead
// one receives messages for its predecessor. So each side gives the other an index and a random tag
// at the handshake, and every message repeats them. The sequence detects messages that libfabric
// lost when it silently made a new connection.
//
// A message that libfabric would not send eagerly leaves in pieces, a libfabric message each: all
// but the last have kind `piece`, the last has `data`. No other message of the sender comes between
// them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/codec.h"
#include "na/hello.h"
#include "na/socket_name.h"

namespace weft::na::ofi {

enum class Kind : std::uint16_t {
    data = 0,
    bye = 1,      // The sender has closed the peer.
    hello = 2,    // Opens a connection; index and tag are `no_index` and `wire_magic`.
    welcome = 3,  // Answers a hello.
    refusal = 4,  // Answers a hello.
    piece = 5,    // Part of a message: the sender's next one continues it.
};

struct Prefix {
    std::uint32_t index = 0;     // The receiver's index of the sender.
    std::uint32_t tag = 0;       // The tag of that index.
    std::uint32_t sequence = 0;  // Of data, pieces and byes, from 1.
    std::uint16_t bytes = 0;     // After the prefix.
    Kind kind = Kind::data;
};
static_assert(sizeof(Prefix) == 16);  // Keeps the frames behind it 8-byte aligned.

inline constexpr std::uint32_t no_index = ~0u;

// Of one libfabric message: its least and largest size, and the largest after the prefix. Then the
// most pieces of a message.
inline constexpr std::size_t fabric_bytes_min = 1024;
inline constexpr std::size_t fabric_bytes_max = 34 * 1024;
inline constexpr std::size_t piece_bytes_max = fabric_bytes_max - sizeof(Prefix);
inline constexpr std::uint32_t pieces_max = 4;
static_assert(piece_bytes_max <= UINT16_MAX);

// The index and tag that a peer must put on its messages to this endpoint.
struct Label {
    std::uint32_t index = no_index;
    std::uint32_t tag = 0;
    friend bool operator==(const Label&, const Label&) = default;
};

struct HelloBody {
    Label reply_to;
    SocketName name;  // Where the sender's endpoint listens.
    ByteView hello;   // Not yet checked by decode_hello().
};
struct WelcomeBody {
    Label label;
    ByteView hello;
};
struct RefusalBody {
    Code code = Code::unavailable;
    std::string_view text;
};

inline constexpr std::size_t control_bytes_max = 512;
inline constexpr std::size_t refusal_text_max = 200;
static_assert(sizeof(Prefix) + 2 * sizeof(Label) + sizeof(sockaddr_in6) + hello_bytes_max <=
              control_bytes_max);

// Write a whole message; return its bytes. Require to.size() >= control_bytes_max.
std::size_t encode_hello(const Label& reply_to, const SocketName& name, const Hello& hello,
                         Bytes to);
std::size_t encode_welcome(const Label& to_peer, const Label& label, const Hello& hello, Bytes to);
std::size_t encode_refusal(const Label& to_peer, const Status& why, Bytes to);

// The prefix of a message with a length that matches; otherwise nullopt.
std::optional<Prefix> decode_prefix(ByteView message);
std::optional<HelloBody> decode_hello_body(ByteView body);
std::optional<WelcomeBody> decode_welcome_body(ByteView body);
std::optional<RefusalBody> decode_refusal_body(ByteView body);

}  // namespace weft::na::ofi
