#include "unfinished_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <random>

#include "name.h"

namespace storage {

using weft::Result;
using weft::Status;

static constexpr const char* attribute = "user.weft.crc32c";
static constexpr std::size_t hex_digits = 16;

static std::string random_hex() {
    std::random_device random;
    char text[hex_digits + 1];
    std::snprintf(text, sizeof text, "%08x%08x", random(), random());
    return text;
}

// As much of the name as fits.
static std::string temporary_for(std::string_view leaf) {
    constexpr std::size_t room = NAME_MAX - 2 - hex_digits - unfinished_suffix.size();
    while (leaf.size() > room || !is_utf8(leaf)) leaf.remove_suffix(1);
    return "." + std::string(leaf) + "." + random_hex() + std::string(unfinished_suffix);
}

static Status validate_length(const std::string& leaf, const std::string& display_name) {
    if (leaf.size() <= NAME_MAX) return {};
    return errno_status(ENAMETOOLONG, "can't create " + display_name);
}

// The path of a nameless file, where /proc is mounted.
static std::string name_of(int file) { return "/proc/self/fd/" + std::to_string(file); }

Result<UnfinishedFile> UnfinishedFile::create_nameless(Fd directory, std::string leaf,
                                                       std::string display_name) {
    if (Status status = validate_length(leaf, display_name); !status.ok()) return status;
    Fd file(::openat(directory.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
    if (!file || ::access(name_of(file.get()).c_str(), F_OK) != 0) {
        return create(std::move(directory), std::move(leaf), std::move(display_name));
    }
    UnfinishedFile made;
    made.temporary_ = temporary_for(leaf);
    made.directory_ = std::move(directory);
    made.file_ = std::move(file);
    made.leaf_ = std::move(leaf);
    made.display_name_ = std::move(display_name);
    made.is_nameless_ = true;
    return made;
}

// linkat() replaces nothing, so the name that it gives is temporary.
static int name_nameless(int file, int directory, const std::string& name) {
    return ::linkat(AT_FDCWD, name_of(file).c_str(), directory, name.c_str(), AT_SYMLINK_FOLLOW);
}

Result<UnfinishedFile> UnfinishedFile::create(Fd directory, std::string leaf,
                                              std::string display_name) {
    if (Status status = validate_length(leaf, display_name); !status.ok()) return status;
    UnfinishedFile made;
    made.temporary_ = temporary_for(leaf);
    constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    made.file_ = Fd(::openat(directory.get(), made.temporary_.c_str(), flags, 0666));
    if (!made.file_) return errno_status(errno, "can't create " + display_name);
    made.directory_ = std::move(directory);
    made.leaf_ = std::move(leaf);
    made.display_name_ = std::move(display_name);
    return made;
}

Status UnfinishedFile::append(weft::ByteView bytes) {
    return write_all(file_.get(), bytes, display_name_);
}

static Status store_crc32c(int fd, std::uint32_t crc, const std::string& display_name) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", crc);
    if (::fsetxattr(fd, attribute, text, 8, 0) == 0) return {};
    // A file system without user attributes, or a sandbox, keeps objects without their checksums.
    for (const int refused : {ENOTSUP, ENOSYS, EPERM, EACCES}) {
        if (errno == refused) return {};
    }
    return errno_status(errno, "can't keep the checksum of " + display_name);
}

// A file that takes over a name gets the mode of the file before it, and its owner and group as far
// as this process may set them. Access rights for another owner or group are not kept for the new
// one.
static Status keep_access(int file, int directory, const std::string& leaf,
                          const std::string& display_name) {
    struct stat old {};
    if (::fstatat(directory, leaf.c_str(), &old, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(old.st_mode)) {
        return {};
    }
    constexpr auto as_it_is = static_cast<uid_t>(-1);
    mode_t mode = old.st_mode & 07777;
    if (::fchown(file, old.st_uid, old.st_gid) != 0) {
        mode &= 0777;
        if (::fchown(file, as_it_is, old.st_gid) != 0) mode &= ~mode_t{S_IRWXG};
    }
    if (::fchmod(file, mode) == 0) return {};
    return errno_status(errno, "can't give the mode of " + display_name + " to what replaces it");
}

Status UnfinishedFile::commit(std::optional<std::uint32_t> crc) {
    Status status;
    if (crc) status = store_crc32c(file_.get(), *crc, display_name_);
    if (status.ok()) status = keep_access(file_.get(), directory_.get(), leaf_, display_name_);
    if (status.ok() && ::fsync(file_.get()) != 0) {
        status = errno_status(errno, "can't make " + display_name_ + " durable");
    }
    if (status.ok() && is_nameless_ &&
        name_nameless(file_.get(), directory_.get(), temporary_) != 0) {
        status = errno_status(errno, "can't name " + display_name_);
    }
    if (status.ok() &&
        ::renameat(directory_.get(), temporary_.c_str(), directory_.get(), leaf_.c_str()) != 0) {
        status = errno_status(errno, "can't name " + display_name_);
    }
    if (!status.ok()) {
        discard();
        return weft::rejected(std::move(status));  // No such object exists.
    }
    temporary_.clear();
    if (sync_directory(directory_.get()) != 0) {
        return errno_status(errno, "can't make the name of " + display_name_ + " durable");
    }
    return {};
}

void UnfinishedFile::discard() {
    if (!file_ || temporary_.empty()) return;
    ::unlinkat(directory_.get(), temporary_.c_str(), 0);
    temporary_.clear();
    file_.reset();
}

bool is_unfinished(std::string_view leaf) {
    if (!leaf.starts_with('.') || !leaf.ends_with(unfinished_suffix)) return false;
    leaf.remove_suffix(unfinished_suffix.size());
    if (leaf.size() < hex_digits + 3 || leaf[leaf.size() - hex_digits - 1] != '.') return false;
    return leaf.substr(leaf.size() - hex_digits).find_first_not_of("0123456789abcdef") == leaf.npos;
}

std::optional<std::uint32_t> stored_crc32c(int fd) {
    char text[8];
    if (::fgetxattr(fd, attribute, text, sizeof text) != sizeof text) return std::nullopt;
    std::uint32_t crc = 0;
    const auto [end, error] = std::from_chars(text, text + sizeof text, crc, 16);
    if (error != std::errc() || end != text + sizeof text) return std::nullopt;
    return crc;
}

}  // namespace storage
