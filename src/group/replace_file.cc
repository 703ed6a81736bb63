#include "group/replace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

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

Result<base::UniqueFd> lock_file(const std::string& path) {
    const std::string name = path + ".lock";
    constexpr int flags = O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    base::UniqueFd lock(::open(name.c_str(), flags | O_RDWR, 0666));
    // Another user's. Those who may read it may lock it, but on file systems of the network.
    if (!lock && errno == EACCES) lock.reset(::open(name.c_str(), flags | O_RDONLY, 0666));
    int held = lock ? -1 : 0;
    while (held < 0 && (held = ::flock(lock.get(), LOCK_EX)) < 0 && errno == EINTR) {
    }
    if (!lock || held < 0) return file_error("can't lock '" + name + "'");
    return lock;
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

// Where that fails the change has been made all the same: a crash of the machine may undo it.
static void make_durable(const std::string& directory) {
    const base::UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    [[maybe_unused]] const int done = ::fsync(fd.get());
}

Status replace_file(const std::string& path, std::string_view text) {
    const auto failed = [&] { return file_error("can't write the group file '" + path + "'"); };
    struct stat old;
    if (::stat(path.c_str(), &old) != 0) return failed();
    // That nobody may write it says that nobody should replace it.
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) return failed();
    const std::size_t leaf = path.rfind('/') + 1;  // 0 without one.
    const std::string directory = path.substr(0, leaf);
    const std::string unfinished = directory + "." + path.substr(leaf) + ".weft-tmp";
    ::unlink(unfinished.c_str());  // Of somebody who died: we hold the lock.
    const base::UniqueFd fd(
        ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return failed();
    [[maybe_unused]] const int owned = ::fchown(fd.get(), old.st_uid, old.st_gid);
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
