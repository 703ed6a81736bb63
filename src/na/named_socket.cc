#include "na/named_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "na/memory_file.h"

namespace weft::na {

static constexpr int backlog = 512;
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

static Status in_use(const std::string& uri, const std::string& why) {
    return fail(Code::already_exists, uri + ' ' + why);
}

static constexpr const char* has_owner = "is served by a live process already";

// Whether `path` still names the open file.
static bool is_named(const struct stat& open, const std::string& path) {
    struct stat named {};
    return ::lstat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
           open.st_ino == named.st_ino;
}

// An owner that closes removes its lock file while it holds the lock. A process that opened the
// file before and locks it afterwards would hold a lock that no other process sees, so it tries
// again.
static Result<base::UniqueFd> take_lock(const std::string& path, const std::string& uri) {
    for (int tries = 0; tries < lock_tries_max; ++tries) {
        auto lock = base::UniqueFd::close_on_fork(
            [&] { return ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600); });
        if (!lock) return fail(Code::unavailable, errno_text("opening " + path));
        struct stat file {};
        if (::fstat(lock.get(), &file) != 0 || !S_ISREG(file.st_mode) || file.st_size != 0) {
            return in_use(uri,
                          "needs " + path + " for a lock, and that is a file of another program");
        }
        if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) return fail(Code::unavailable, errno_text("locking " + path));
            break;
        }
        if (is_named(file, path)) return lock;
    }
    return in_use(uri, has_owner);
}

// Removes the socket of a dead owner and no other file. A live socket without a lock may belong to
// another program.
static Status clear_path(const sockaddr_un& address, int type, const std::string& uri) {
    struct stat file {};
    if (::lstat(address.sun_path, &file) != 0) return {};  // bind() reports every other error.
    if (!S_ISSOCK(file.st_mode)) return in_use(uri, "can't be served: a file is there");
    const auto probe = base::UniqueFd::close_on_fork(
        [&] { return ::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (!probe) return fail(Code::unavailable, errno_text(uri + ": socket"));
    const bool is_dead =
        ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
        errno == ECONNREFUSED;
    if (!is_dead) return in_use(uri, has_owner);
    ::unlink(address.sun_path);
    return {};
}

Result<NamedSocket> NamedSocket::listen(const std::string& path, const std::string& lock_path,
                                        int type, const std::string& uri) {
    Result<sockaddr_un> address = unix_address(path);
    if (!address) return std::move(address).status();
    NamedSocket named;
    Result<base::UniqueFd> lock = take_lock(lock_path, uri);
    if (!lock) return std::move(lock).status();
    named.lock_ = std::move(*lock);
    named.lock_path_ = lock_path;
    named.socket_ = base::UniqueFd::close_on_fork(
        [&] { return ::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (!named.socket_) return fail(Code::unavailable, errno_text(uri + ": socket"));
    if (Status status = clear_path(*address, type, uri); !status.ok()) return status;
    if (::bind(named.socket_.get(), reinterpret_cast<const sockaddr*>(&*address),
               sizeof *address) != 0) {
        return fail(Code::unavailable, errno_text(uri + ": binding " + path));
    }
    (void)::lstat(path.c_str(), &named.file_);
    named.path_ = path;
    if (::listen(named.socket_.get(), backlog) != 0) {
        return fail(Code::unavailable, errno_text(uri + ": listen"));
    }
    return named;
}

NamedSocket::~NamedSocket() {
    if (!lock_) return;
    if (!path_.empty() && is_named(file_, path_)) ::unlink(path_.c_str());
    struct stat lock {};  // In a cleaned directory, it may be a successor's.
    if (!lock_path_.empty() && ::fstat(lock_.get(), &lock) == 0 && is_named(lock, lock_path_)) {
        ::unlink(lock_path_.c_str());
    }
}

}  // namespace weft::na
