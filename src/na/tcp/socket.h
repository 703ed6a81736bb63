// The system calls that make tcp sockets, with the options that weft needs.
#pragma once

#include <weft/result.h>

#include "base/unique_fd.h"
#include "na/socket_name.h"

namespace weft::na::tcp {

// A socket that listens at `at`, port 0 for any; never blocks. `uri` is used in error texts.
// Errors: ALREADY_EXISTS (taken), PERMISSION_DENIED, UNAVAILABLE, RESOURCE_EXHAUSTED.
Result<base::UniqueFd> listen_at(const SocketName& at, const std::string& uri);

// A connecting socket: writable when the attempt has ended, socket_error() then returns its result.
// Empty: the listener's queue is full, try again.
// Errors: UNAVAILABLE (no listener, no route), RESOURCE_EXHAUSTED.
Result<base::UniqueFd> start_connecting(const SocketName& to);
// Bytes that the peer's kernel has not acknowledged yet.
std::size_t unacknowledged_bytes(int socket);
// Of these, the bytes that the kernel has not sent yet.
std::size_t waiting_bytes(int socket);
// The error number that ended a connection; 0: none.
int socket_error(int socket);

// Detect a lost peer: within 3 s while the answer to the hello is awaited, later within the time
// that an established connection can wait.
void set_handshake_options(int socket);
void set_lasting_options(int socket);

// For an accepted connection.
void set_accepted_options(int socket);

SocketName local_name(int socket);

// For a connection within a host, which is never congested: a congestion control that paces (bbr)
// would arm a timer for every burst, which costs large messages half of their time. Requires: it is
// connected.
void use_plain_congestion_control(int socket);

}  // namespace weft::na::tcp
