#include "file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace storage {

namespace fs = std::filesystem;

using weft::Code;
using weft::Result;
using weft::Status;

void Fd::reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

// Standard output may be a non-blocking pipe or socket.
static bool waits_to_write(int fd, int error) {
    pollfd ready{fd, POLLOUT, 0};
    return error == EINTR || (error == EAGAIN && ::poll(&ready, 1, -1) > 0);
}

static Code code_of(int error) {
    switch (error) {
        case ENOENT: return Code::not_found;
        case EACCES:
        case EPERM: return Code::permission_denied;
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
        case EMFILE:
        case ENFILE:
        case EMLINK:
        case ENOLCK:
        case ENOBUFS:
        case EAGAIN:
        case ENOMEM: return Code::resource_exhausted;
        case EIO: return Code::data_loss;
        case EINVAL:  // A name or an operation that this file system does not support.
        case EILSEQ:
        case ENAMETOOLONG: return Code::invalid_argument;
        case EBADF:  // Standard input or output is closed.
        case EPIPE:
        case EROFS:
        case EISDIR:
        case ENOTDIR:
        case EEXIST:
        case ENOTEMPTY:
        case EBUSY:
        case EXDEV:
        case ELOOP:
        case ENXIO:
        case ENODEV:
        case ESPIPE:
        case EOPNOTSUPP:
        case ECONNRESET:  // Standard input or output is a socket.
        case ENOTCONN:
        case ESTALE:  // From a network file system.
        case ETXTBSY: return Code::failed_precondition;
        default: return Code::internal;
    }
}

Status errno_status(int error, std::string what) {
    return weft::fail(code_of(error),
                      std::move(what) + ": " + std::generic_category().message(error));
}

Result<std::string> resolve_target(const std::string& path) {
    std::error_code error;
    const fs::file_status there = fs::status(path, error);
    if (fs::exists(there) && !fs::is_regular_file(there)) {
        return weft::fail(Code::failed_precondition, "'" + path + "' is no regular file");
    }
    if (!fs::is_symlink(fs::symlink_status(path, error))) return path;
    const fs::path target = fs::canonical(path, error);
    if (error) return errno_status(error.value(), "can't follow the link '" + path + "'");
    return target.string();
}

int sync_directory(int fd) {
    if (::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP) return 0;
    return -1;
}

Status write_all(int fd, weft::ByteView bytes, const std::string& what) {
    while (!bytes.empty()) {
        const ssize_t put = ::write(fd, bytes.data(), bytes.size());
        if (put < 0 && waits_to_write(fd, errno)) continue;
        if (put < 0) return errno_status(errno, "can't write " + what);
        bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return {};
}

Result<std::size_t> read_full(int fd, std::uint64_t offset, weft::Bytes into,
                              const std::string& what) {
    std::size_t done = 0;
    while (done < into.size()) {
        std::byte* at = into.data() + done;
        const std::size_t left = into.size() - done;
        const ssize_t got = ::pread(fd, at, left, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno_status(errno, "can't read " + what);
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

Result<ReadPart> read_for(int fd, weft::Bytes into, weft::Duration time, const std::string& what) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + time;
    ReadPart part;
    while (part.bytes < into.size()) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            std::max(end - Clock::now(), Clock::duration::zero()));
        pollfd ready{fd, POLLIN, 0};
        const int polled = ::poll(&ready, 1, static_cast<int>(left.count()));
        if (polled == 0) break;
        const ssize_t got =
            polled < 0 ? polled : ::read(fd, into.data() + part.bytes, into.size() - part.bytes);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) return errno_status(errno, "can't read " + what);
        part.is_at_end = got == 0;
        if (part.is_at_end) break;
        part.bytes += static_cast<std::size_t>(got);
    }
    return part;
}

Status changed(const std::string& what, const FileStamp& before, const FileStamp& now) {
    return weft::fail(Code::aborted, what + " changed while it was read (" +
                                         std::to_string(before.size) + " bytes before, " +
                                         std::to_string(now.size) +
                                         " after); try again when nothing writes to it");
}

Result<SourceCheck> SourceCheck::begin(int fd, const std::string& what) {
    SourceCheck source;
    source.fd_ = fd;
    source.what_ = what;
    struct stat file {};
    if (::fstat(fd, &file) != 0) return errno_status(errno, "can't stat " + what);
    if (!S_ISREG(file.st_mode)) return source;
    source.before_ = stamp_of(file);
    const off_t at = ::lseek(fd, 0, SEEK_CUR);
    if (at < 0) return errno_status(errno, "can't read " + what);
    source.offset_ = static_cast<std::uint64_t>(at);
    return source;
}

Status SourceCheck::check(std::uint64_t read, bool at_end) const {
    if (!before_) return {};
    struct stat file {};
    if (::fstat(fd_, &file) != 0) return errno_status(errno, "can't stat " + what_);
    if (const FileStamp now = stamp_of(file); now != *before_) {
        return changed(what_, *before_, now);
    }
    const std::uint64_t end = offset_ + read;
    if (!at_end || end >= before_->size) return {};
    return changed(what_, *before_, {end, before_->mtime_ns});
}

}  // namespace storage
