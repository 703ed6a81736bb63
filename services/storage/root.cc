#include "root.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "beneath.h"
#include "name.h"

namespace storage {

using weft::Code;
using weft::Result;
using weft::Status;

static constexpr int directory_flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

// A failure before any change: the client may safely retry.
static Status refused(const Status& status) {
    return weft::rejected(status.code(), std::string(status.text()));
}

static Status refused_errno(int error, const char* action, std::string_view name) {
    if (error == ENOENT) {
        return weft::rejected(Code::not_found, "no object has the name " + quote(name));
    }
    if (error == EXDEV || error == ELOOP) {
        return weft::rejected(Code::permission_denied,
                              "the object name " + quote(name) + " leads out of the server's root");
    }
    return refused(errno_status(error, std::string("can't ") + action + " " + quote(name)));
}

// Removes files below `directory` that a killed server left; `levels` bounds the descent.
static std::size_t remove_unfinished_below(Fd directory, std::size_t levels) {
    std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(::dup(directory.get())), ::closedir);
    if (!entries) return 0;
    std::size_t removed = 0;
    while (const dirent* entry = ::readdir(entries.get())) {
        const std::string name = entry->d_name;
        if (name == "." || name == "..") continue;
        if (is_unfinished(name)) {
            removed += ::unlinkat(directory.get(), name.c_str(), 0) == 0;
            continue;
        }
        const bool may_be_directory = entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN;
        if (levels == 0 || !may_be_directory) continue;
        Fd below(::openat(directory.get(), name.c_str(), directory_flags | O_NOFOLLOW));
        if (below) removed += remove_unfinished_below(std::move(below), levels - 1);
    }
    return removed;
}

// File modes do not suffice: a file system may be read-only, or accept no files at all (/proc,
// /sys).
static Status try_writing(const Fd& directory, const std::string& display_name) {
    Fd again(::openat(directory.get(), ".", directory_flags));
    if (!again) return errno_status(errno, "can't open " + display_name);
    const Result<UnfinishedFile> file =
        UnfinishedFile::create(std::move(again), "probe", "a file in it");
    const Code code = file.status().code();
    // A store on a full disk still serves its objects.
    if (file || code == Code::resource_exhausted) return {};
    return weft::fail(Code::permission_denied,
                      "can't write in " + display_name + ": " + std::string(file.status().text()));
}

Result<Root> Root::open(const std::string& path) {
    const std::string display_name = "the root '" + path + "'";
    Root root;
    root.path_ = path;
    root.directory_ = Fd(::open(path.c_str(), directory_flags));
    if (!root.directory_) return errno_status(errno, "can't open " + display_name);
    if (::faccessat(root.directory_.get(), ".", W_OK | X_OK, AT_EACCESS) != 0) {
        return weft::fail(
            Code::permission_denied,
            std::string(errno_status(errno, "can't write in " + display_name).text()));
    }
    if (::flock(root.directory_.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return errno_status(errno, "can't lock " + display_name);
        return weft::fail(Code::failed_precondition, display_name + " is served by another server");
    }
    if (Status status = try_writing(root.directory_, display_name); !status.ok()) return status;
    // An earlier server may have ended between making a directory and making it durable.
    if (::syncfs(root.directory_.get()) != 0) {
        return errno_status(errno, "can't make " + display_name + " durable");
    }
    Fd again(::openat(root.directory_.get(), ".", directory_flags));
    root.removed_unfinished_ = remove_unfinished_below(std::move(again), name_depth_max);
    return root;
}

Result<Fd> Root::open_directory(const std::string& name) const {
    Fd fd = open_beneath(directory_.get(), name.empty() ? "." : name.c_str(), directory_flags);
    if (!fd && name.empty()) {
        return refused(errno_status(errno, "can't open the root '" + path_ + "'"));
    }
    if (!fd) return refused_errno(errno, "open", name);
    return fd;
}

Result<Fd> Root::make_directories(const std::string& name) const {
    Result<Fd> at = open_directory("");
    std::size_t end = 0;
    while (at && !name.empty() && end != name.npos) {
        const std::size_t begin = end == 0 ? 0 : end + 1;
        end = name.find('/', begin);
        const std::string part = name.substr(begin, end == name.npos ? end : end - begin);
        const std::string path = name.substr(0, end);
        if (const int error = unsynced_->make(at->get(), part, path); error != 0) {
            return refused(errno_status(
                error, "can't make the directory " + quote(path) + " in the root '" + path_ + "'"));
        }
        // Resolved from the root each time: a link on the way may not lead out.
        at = open_directory(path);
    }
    return at;
}

Result<UnfinishedFile> Root::create(std::string_view name) const {
    if (Status status = validate_name(name); !status.ok()) return status;
    for (int tries = 1;; ++tries) {
        Result<UnfinishedFile> file = try_create(name);
        // Otherwise a remove() deleted the directory, empty at that time, after it was made.
        if (file || file.status().code() != Code::not_found || tries == 100) return file;
    }
}

Result<UnfinishedFile> Root::try_create(std::string_view name) const {
    SplitName parts = split(name);
    Result<Fd> directory = make_directories(parts.directory);
    if (!directory) return std::move(directory).status();
    struct stat there {};
    if (::fstatat(directory->get(), parts.leaf.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(there.st_mode)) {
        return weft::rejected(Code::failed_precondition, quote(name) + " is a directory");
    }
    Result<UnfinishedFile> file = UnfinishedFile::create(
        *std::move(directory), std::move(parts.leaf), quote(name) + " in the root '" + path_ + "'");
    if (!file) return refused(std::move(file).status());
    return file;
}

Result<Fd> Root::open_object(std::string_view name) const {
    if (Status status = validate_name(name); !status.ok()) return status;
    // Without O_NONBLOCK a fifo would block this thread for ever.
    Fd fd = open_beneath(directory_.get(), std::string(name).c_str(),
                         O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (!fd) return refused_errno(errno, "open", name);
    return fd;
}

Status Root::remove(std::string_view name) const {
    if (Status status = validate_name(name); !status.ok()) return status;
    const SplitName parts = split(name);
    Result<Fd> directory = open_directory(parts.directory);
    if (!directory) {
        if (directory.status().code() != Code::not_found) {
            return std::move(directory).status().in("can't remove " + quote(name));
        }
        return refused_errno(ENOENT, "remove", name);
    }
    if (::unlinkat(directory->get(), parts.leaf.c_str(), 0) != 0) {
        return refused_errno(errno, "remove", name);
    }
    if (sync_directory(directory->get()) != 0) {
        return errno_status(errno, "can't make the end of " + quote(name) + " durable");
    }
    remove_empty(parts.directory);
    return {};
}

// Directories exist for the objects in them: a client can neither see nor remove an empty
// directory.
void Root::remove_empty(std::string directory) const {
    while (!directory.empty()) {
        const SplitName parts = split(directory);
        const Result<Fd> above = open_directory(parts.directory);
        if (!above || ::unlinkat(above->get(), parts.leaf.c_str(), AT_REMOVEDIR) != 0) return;
        directory = parts.directory;
    }
}

Result<ObjectInfo> info_of(int fd, std::string_view name) {
    struct stat file {};
    if (::fstat(fd, &file) != 0) return refused(errno_status(errno, "can't stat " + quote(name)));
    if (!S_ISREG(file.st_mode)) {
        return weft::rejected(
            Code::failed_precondition,
            quote(name) + (S_ISDIR(file.st_mode) ? " is a directory" : " is no regular file"));
    }
    return ObjectInfo{stamp_of(file), stored_crc32c(fd)};
}

}  // namespace storage
