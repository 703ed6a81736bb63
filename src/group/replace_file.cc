#include "group/replace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/assert.h"
#include "group/file_error.h"

namespace weft::group {

Result<std::string> resolve_link(const std::string& path) {
    struct stat state;
    if (::lstat(path.c_str(), &state) == 0 && !S_ISLNK(state.st_mode)) return path;
    const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                           &std::free);
    if (!real) return file_error("can't read the group file '" + path + "'");
    return std::string(real.get());
}

// Gives the lock the file's group and mode, if this process owns the lock.
static void share(int lock, const std::string& path) {
    WEFT_ASSERT(lock >= 0);
    struct stat file;
    if (::stat(path.c_str(), &file) != 0) return;
    [[maybe_unused]] const int owned = ::fchown(lock, static_cast<uid_t>(-1), file.st_gid);
    [[maybe_unused]] const int shared = ::fchmod(lock, file.st_mode & 0666);
}

FileLock::~FileLock() {
    if (held_ && process_.is_this()) (void)::flock(held_.get(), LOCK_UN);
}

Result<FileLock> lock_file(const std::string& path) {
    const std::string name = path + ".lock";
    constexpr int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    base::UniqueFd lock(::open(name.c_str(), flags | O_RDWR | O_CREAT, 0666));
    if (lock) {
        share(lock.get(), path);
    } else if (errno == EACCES) {
        // The lock file of another user. Read access suffices for a lock, except on network file
        // systems.
        lock.reset(::open(name.c_str(), flags | O_RDONLY));
        if (!lock) errno = EACCES;  // The refused creation is the reason.
    }
    int held = lock ? -1 : 0;
    while (held < 0 && (held = ::flock(lock.get(), LOCK_EX)) < 0 && errno == EINTR) {
    }
    if (!lock || held < 0) return file_error("can't lock '" + name + "'");
    return FileLock(std::move(lock));
}

static bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t put = ::write(fd, text.data(), text.size());
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        text.remove_prefix(static_cast<std::size_t>(put));
    }
    return true;
}

// If this fails, the change has been made nevertheless, but a crash of the machine may undo it.
static void make_durable(const std::string& directory) {
    const base::UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    [[maybe_unused]] const int done = ::fsync(fd.get());
}

// Keeps access to the file: its group, its access list if it has one, and its owner if this process
// has the right. False: errno has the reason.
static bool keep_access(int fd, const std::string& path, const struct stat& old) {
    WEFT_ASSERT(fd >= 0);
    constexpr auto as_it_is = static_cast<uid_t>(-1);
    if (::fchown(fd, old.st_uid, old.st_gid) != 0 && ::fchown(fd, as_it_is, old.st_gid) != 0) {
        return false;
    }
    constexpr const char* access_list = "system.posix_acl_access";
    char list[4096];
    const ssize_t bytes = ::getxattr(path.c_str(), access_list, list, sizeof list);
    if (bytes < 0) return errno == ENODATA || errno == ENOTSUP;
    return ::fsetxattr(fd, access_list, list, static_cast<std::size_t>(bytes), 0) == 0;
}

Status replace_file(const std::string& path, std::string_view text) {
    const auto failed = [&] { return file_error("can't write the group file '" + path + "'"); };
    struct stat old;
    if (::stat(path.c_str(), &old) != 0) return failed();
    // A file without write permission must not be replaced either.
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) return failed();
    const std::size_t leaf = path.rfind('/') + 1;  // 0 without one.
    const std::string directory = path.substr(0, leaf);
    const std::string unfinished = directory + "." + path.substr(leaf) + ".weft-tmp";
    ::unlink(unfinished.c_str());  // Left by a dead process: this process holds the lock.
    const base::UniqueFd fd(
        ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return failed();
    if (!keep_access(fd.get(), path, old)) {
        Status why = file_error("can't keep the group and the access list of '" + path + "'");
        ::unlink(unfinished.c_str());
        return why;
    }
    if (write_all(fd.get(), text) && ::fchmod(fd.get(), old.st_mode & 07777) == 0 &&
        ::fsync(fd.get()) == 0 && ::rename(unfinished.c_str(), path.c_str()) == 0) {
        make_durable(directory.empty() ? "." : directory);
        return {};
    }
    Status why = failed();
    ::unlink(unfinished.c_str());
    return why;
}

}  // namespace weft::group
