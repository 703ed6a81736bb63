// The two packets that open an sm connection, with the descriptors that come along.
//
// connector -> acceptor: greeting {region table, rings, arena}
// acceptor -> connector: greeting {region table, arena}, or a refusal with its reason.
// After that the socket carries wake-ups and the end of the peer, nothing else.
#pragma once

#include <array>
#include <optional>

#include "base/unique_fd.h"
#include "na/hello.h"

namespace weft::na::sm {

// Descriptors of a greeting: sent when set, and in this order.
struct Files {
    base::UniqueFd regions;
    base::UniqueFd rings;  // From the connector only.
    base::UniqueFd arena;  // Absent when the peer has none; its memory can't be accessed then.
};

struct Greeting {
    Hello hello;
    Files files;
};

// The same for sending: borrowed descriptors, -1 for none.
struct FilesToSend {
    int regions = -1;
    int rings = -1;
    int arena = -1;
};

// Errors: busy_code when the kernel has no place for it now: among others a user's processes may
// have no more descriptors under way, sent and not received, than RLIMIT_NOFILE of the sender;
// UNAVAILABLE when the peer hung up.
Status send_greeting(int socket, const Hello& hello, const FilesToSend& files);
// Drops what has arrived: a socket that is closed with packets unread resets its peer.
void send_refusal(int socket, const Status& why);

// nullopt: nothing has come yet. Errors: what is wrong with the packet (DATA_LOSS,
// FAILED_PRECONDITION for other versions), the peer's refusal, UNAVAILABLE when it hung up without
// one, which `hung_up` tells from a refusal.
Result<std::optional<Greeting>> receive_greeting(int socket, bool* hung_up = nullptr);

// After the handshake. wake: a byte, never blocks, and is allowed to fail: the peer is gone or has
// more wake-ups than it can read. bye: an orderly close follows.
void send_wake(int socket);
void send_bye(int socket);

// Errors: UNAVAILABLE with a text that says how it ended, when the peer is gone.
Status receive_wakes(int socket);

// Errors: PERMISSION_DENIED for a process of another user.
Status judge_credentials(int socket);

}  // namespace weft::na::sm
