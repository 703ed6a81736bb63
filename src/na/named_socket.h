// A UNIX-domain socket that listens under a path, which is ours while it lives.
//
// A lock beside it, held for life, decides who owns the path: the kernel drops it however its owner
// dies, so that a killed server's path is free at once and a live one's never is. Whatever else
// lies there, a file or the socket of another program, stays, and the path can't be had.
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
    // `type`: SOCK_STREAM or SOCK_SEQPACKET. `uri` is for the words of an error.
    // Errors: ALREADY_EXISTS (a live server has it, or a file is there), INVALID_ARGUMENT,
    // UNAVAILABLE.
    static Result<NamedSocket> listen(const std::string& path, const std::string& lock_path,
                                      int type, const std::string& uri);

    NamedSocket() = default;
    NamedSocket(NamedSocket&&) = default;
    NamedSocket& operator=(NamedSocket&&) = default;
    ~NamedSocket();

    int get() const { return socket_.get(); }
    explicit operator bool() const { return bool(socket_); }
    const std::string& path() const { return path_; }
    // Forgets the path without removing it: for a forked child, whose parent still serves it.
    void abandon() {
        path_.clear();
        lock_path_.clear();
    }

  private:
    base::UniqueFd lock_;
    base::UniqueFd socket_;
    struct stat file_ {};  // What we made there.
    std::string path_;
    std::string lock_path_;
};

}  // namespace weft::na
