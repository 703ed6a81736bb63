#include "file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace storage {

using weft::Code;
using weft::Result;
using weft::Status;

void Fd::reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
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
        case ENOMEM: return Code::resource_exhausted;
        case EIO: return Code::data_loss;
        case ENAMETOOLONG: return Code::invalid_argument;
        case EROFS:
        case EISDIR:
        case ENOTDIR:
        case ELOOP:
        case ENXIO:
        case ETXTBSY: return Code::failed_precondition;
        default: return Code::internal;
    }
}

Status errno_status(int error, std::string what) {
    return weft::fail(code_of(error),
                      std::move(what) + ": " + std::generic_category().message(error));
}

Status write_all(int fd, weft::ByteView bytes, const std::string& what) {
    while (!bytes.empty()) {
        const ssize_t put = ::write(fd, bytes.data(), bytes.size());
        if (put < 0 && errno == EINTR) continue;
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
        const ssize_t got = offset == no_offset
                                ? ::read(fd, at, left)
                                : ::pread(fd, at, left, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno_status(errno, "can't read " + what);
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

}  // namespace storage
