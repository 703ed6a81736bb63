#include "na/sm/names.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "na/memory_file.h"

namespace weft::na::sm {

static constexpr int backlog = 128;
static constexpr int lock_tries_max = 100;

// A directory of ours that nobody else can write: what we make in it stays what we made.
static Status judge_directory(const std::string& path) {
    struct stat is {};
    if (::lstat(path.c_str(), &is) != 0) return fail(Code::unavailable, errno_text(path));
    if (!S_ISDIR(is.st_mode)) return fail(Code::permission_denied, path + " is not a directory");
    if (is.st_uid != ::geteuid()) {
        return fail(Code::permission_denied,
                    path + " belongs to uid " + std::to_string(is.st_uid) + ", not to us");
    }
    if ((is.st_mode & 077) != 0) {
        return fail(Code::permission_denied, path + " is open to other users; chmod 700 it");
    }
    return {};
}

static bool is_own_directory(const char* path) {
    struct stat is {};
    return path && path[0] == '/' && ::stat(path, &is) == 0 && S_ISDIR(is.st_mode) &&
           is.st_uid == ::geteuid() && (is.st_mode & 022) == 0;
}

Result<std::string> names_directory() {
    const char* runtime = std::getenv("XDG_RUNTIME_DIR");
    const std::string path = is_own_directory(runtime) ? std::string(runtime) + "/weft"
                                                       : "/tmp/weft-" + std::to_string(::geteuid());
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
        return fail(Code::unavailable, errno_text("making " + path));
    }
    if (Status status = judge_directory(path); !status.ok()) return status;
    return path;
}

Result<sockaddr_un> socket_address(const std::string& directory, std::string_view name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = directory + "/" + std::string(name);
    if (path.size() >= sizeof address.sun_path) {
        return fail(Code::invalid_argument, "'" + path + "' is too long for a socket (" +
                                                std::to_string(sizeof address.sun_path - 1) +
                                                " bytes); shorten the name or XDG_RUNTIME_DIR");
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

Result<Listening> Listening::open(std::string_view name) {
    const std::string uri = "sm://" + std::string(name);
    Result<std::string> directory = names_directory();
    if (!directory) return std::move(directory).status().in(uri);
    Result<sockaddr_un> address = socket_address(*directory, std::string(name) + ".sock");
    if (!address) return std::move(address).status();

    Listening listening;
    Result<base::UniqueFd> lock = take_lock(*directory + "/" + std::string(name) + ".lock", uri);
    if (!lock) return std::move(lock).status();
    listening.lock_ = std::move(*lock);
    listening.socket_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listening.socket_) return fail(Code::unavailable, errno_text(uri + ": socket"));
    // Left over by a dead owner: we hold the lock, so nobody listens there.
    ::unlink(address->sun_path);
    if (::bind(listening.socket_.get(), reinterpret_cast<const sockaddr*>(&*address),
               sizeof *address) != 0) {
        return fail(Code::unavailable, errno_text(uri + ": binding " + address->sun_path));
    }
    listening.name_ = name;
    listening.path_ = address->sun_path;
    listening.lock_path_ = *directory + "/" + std::string(name) + ".lock";
    if (::listen(listening.socket_.get(), backlog) != 0) {
        return fail(Code::unavailable, errno_text(uri + ": listen"));
    }
    return listening;
}

Listening::~Listening() {
    if (!socket_ || path_.empty()) return;
    ::unlink(path_.c_str());
    ::unlink(lock_path_.c_str());
}

}  // namespace weft::na::sm
