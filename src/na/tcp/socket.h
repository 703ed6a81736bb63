// The system calls that make tcp sockets, with the options that weft wants.
#pragma once

#include <weft/result.h>

#include "base/unique_fd.h"
#include "na/socket_name.h"

namespace weft::na::tcp {

// Listening at `at`, port 0 for any; never blocks. `uri` is for the words of an error.
// Errors: ALREADY_EXISTS (taken), PERMISSION_DENIED, UNAVAILABLE, RESOURCE_EXHAUSTED.
Result<base::UniqueFd> listen_at(const SocketName& at, const std::string& uri);

// A connection under way: writable when it is decided, socket_error() then says how. Empty: the
// other side's queue is full, try again.
// Errors: UNAVAILABLE (nobody there, no route), RESOURCE_EXHAUSTED.
Result<base::UniqueFd> start_connecting(const SocketName& to);
// Sent, and not yet acknowledged by the other side's kernel.
std::size_t unacknowledged_bytes(int socket);
// Of those, what the kernel has not sent yet.
std::size_t waiting_bytes(int socket);
// The error number that ended a connection; 0: none.
int socket_error(int socket);

// Finds a peer that is gone: within 3 s while its answer to our greeting is awaited, later in what
// a connection that lasts can wait for.
void set_greeting_options(int socket);
void set_lasting_options(int socket);

// Of a connection that was accepted.
void set_accepted_options(int socket);

SocketName local_name(int socket);

// Of a connection within a host, where nothing is ever congested: a congestion control that paces
// (bbr) would arm a timer for every burst, which costs large messages half of their time. Requires:
// it is connected.
void use_plain_congestion_control(int socket);

}  // namespace weft::na::tcp
