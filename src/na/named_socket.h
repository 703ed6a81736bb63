// A UNIX-domain socket that listens under a path, which this process owns for the socket's
// lifetime.
//
// A lock file beside it, held for as long, decides which process owns the path. The kernel releases
// the lock however its owner ends: the path of a killed server is free at once, and that of a live
// server never is. Any other file or socket at the path stays, and listening there fails.
#pragma once

#include <sys/stat.h>
#include <sys/un.h>

#include <string>

#include <weft/result.h>

#include "base/unique_fd.h"

namespace weft::na {

// Errors: INVALID_ARGUMENT (too long for a socket).
Result<sockaddr_un> unix_address(const std::string& path);

class NamedSocket {
  public:
    // `type`: SOCK_STREAM or SOCK_SEQPACKET. `uri` is used in error texts.
    // Errors: ALREADY_EXISTS (a live server owns the path, or another file exists there),
    // INVALID_ARGUMENT, UNAVAILABLE.
    static Result<NamedSocket> listen(const std::string& path, const std::string& lock_path,
                                      int type, const std::string& uri);

    NamedSocket() = default;
    NamedSocket(NamedSocket&&) = default;
    NamedSocket& operator=(NamedSocket&&) = default;
    ~NamedSocket();

    int get() const { return socket_.get(); }
    explicit operator bool() const { return bool(socket_); }
    const std::string& path() const { return path_; }
    // Forgets the path without removing it: for a forked child, since the parent still serves it.
    void abandon() {
        path_.clear();
        lock_path_.clear();
    }

  private:
    base::UniqueFd lock_;
    base::UniqueFd socket_;
    struct stat file_ {};  // The file of the socket, as created.
    std::string path_;
    std::string lock_path_;
};

}  // namespace weft::na
