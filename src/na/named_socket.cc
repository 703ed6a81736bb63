#include "na/named_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "na/memory_file.h"

namespace weft::na {

static constexpr int backlog = 128;
static constexpr int lock_tries_max = 100;

Result<sockaddr_un> unix_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        return fail(Code::invalid_argument, "'" + path + "' is too long for a socket (" +
                                                std::to_string(sizeof address.sun_path - 1) +
                                                " bytes)");
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

// Whether the descriptor is still what the path names.
static bool is_named(int fd, const std::string& path) {
    struct stat open {};
    struct stat named {};
    return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
           open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

// An owner that closes removes its lock's file while it holds the lock; who opened the file before
// and locks it after would hold a lock that nobody else sees, and tries again.
static Result<base::UniqueFd> take_lock(const std::string& path, const std::string& uri) {
    for (int tries = 0; tries < lock_tries_max; ++tries) {
        base::UniqueFd lock(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!lock) return fail(Code::unavailable, errno_text("opening " + path));
        if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) return fail(Code::unavailable, errno_text("locking " + path));
            break;
        }
        if (is_named(lock.get(), path)) return lock;
    }
    return fail(Code::already_exists, uri + " is served by a live process already");
}

Result<NamedSocket> NamedSocket::listen(const std::string& path, const std::string& lock_path,
                                        int type, const std::string& uri) {
    Result<sockaddr_un> address = unix_address(path);
    if (!address) return std::move(address).status();
    NamedSocket named;
    Result<base::UniqueFd> lock = take_lock(lock_path, uri);
    if (!lock) return std::move(lock).status();
    named.lock_ = std::move(*lock);
    named.socket_.reset(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!named.socket_) return fail(Code::unavailable, errno_text(uri + ": socket"));
    // Left over by a dead owner: we hold the lock, so nobody listens there.
    ::unlink(address->sun_path);
    if (::bind(named.socket_.get(), reinterpret_cast<const sockaddr*>(&*address),
               sizeof *address) != 0) {
        return fail(Code::unavailable, errno_text(uri + ": binding " + path));
    }
    named.path_ = path;
    named.lock_path_ = lock_path;
    if (::listen(named.socket_.get(), backlog) != 0) {
        return fail(Code::unavailable, errno_text(uri + ": listen"));
    }
    return named;
}

NamedSocket::~NamedSocket() {
    if (!socket_ || path_.empty()) return;
    ::unlink(path_.c_str());
    ::unlink(lock_path_.c_str());
}

}  // namespace weft::na
