// The two packets that open an sm connection, with their descriptors.
//
// connector -> acceptor: hello {region table, rings, arena}
// acceptor -> connector: hello {region table, arena}, or a refusal with its reason; before, once,
//                        `passed`, if another context of the acceptor has the hello to answer it.
// After that the socket carries only wake-ups and the end of the connection.
#pragma once

#include <array>
#include <optional>

#include "base/unique_fd.h"
#include "na/hello.h"

namespace weft::na::sm {

// Descriptors of a hello: each is sent if set, in this order.
struct Files {
    base::UniqueFd regions;
    base::UniqueFd rings;  // From the connector only.
    base::UniqueFd arena;  // Absent when the peer has none: it exposes only private memory then.
};

struct HelloPacket {
    bool is_passed = false;  // No hello: the notice before it.
    Hello hello;
    Files files;
};

// The same for sending: borrowed descriptors, -1 for none.
struct FilesToSend {
    int regions = -1;
    int rings = -1;
    int arena = -1;
};

// Errors: busy_code when the kernel has no room for it now (one limit: the descriptors that a
// user's processes have sent and not received are at most the sender's RLIMIT_NOFILE); UNAVAILABLE
// when the peer hung up.
Status send_hello(int socket, const Hello& hello, const FilesToSend& files);
void send_passed(int socket);
// Drops received packets: closing a socket with unread packets resets its peer.
void send_refusal(int socket, const Status& why);

// nullopt: no packet has arrived yet. Errors: an invalid packet (DATA_LOSS, FAILED_PRECONDITION for
// other versions), the peer's refusal, UNAVAILABLE when the peer hung up without one; `hung_up`
// distinguishes the last two.
Result<std::optional<HelloPacket>> receive_hello(int socket, bool* hung_up = nullptr);

// After the handshake. wake: a byte; never blocks and may fail: the peer has disconnected, or has
// more wake-ups than it can read. bye: an orderly close follows.
void send_wake(int socket);
void send_bye(int socket);

// Errors: UNAVAILABLE when the peer has disconnected, with the reason as text.
Status receive_wakes(int socket);

// Errors: PERMISSION_DENIED for a process of another user.
Status validate_credentials(int socket);

}  // namespace weft::na::sm
