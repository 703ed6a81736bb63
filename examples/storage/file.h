// Descriptors, and errors of system calls as statuses. All of it may block: call it by
// weft::offload.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <weft/bytes.h>
#include <weft/result.h>

namespace storage {

// Closes what it owns.
class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    ~Fd() { reset(); }

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    void reset();
    int release() { return std::exchange(fd_, -1); }

  private:
    int fd_ = -1;
};

// `what` failed with `error`, an errno: "can't open '/data': Permission denied".
// NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk, quota, descriptors), DATA_LOSS (the
// device failed), INVALID_ARGUMENT (a name), FAILED_PRECONDITION (something is in the way: a file,
// a directory, a read-only file system), else INTERNAL.
weft::Status errno_status(int error, std::string what);

// Where a file of this name would really stand: the name of a link is that of what it leads to.
// Errors: FAILED_PRECONDITION for a device, a fifo, a directory: no file may take their place.
weft::Result<std::string> resolve_target(const std::string& path);

// All of `bytes`, or an error. `what` names the file in it.
weft::Status write_all(int fd, weft::ByteView bytes, const std::string& what);
// Until `into` is full or the file ends; returns how much that was. Regular files are read at
// `offset`; with `offset` no_offset from where the descriptor stands, as pipes want.
inline constexpr std::uint64_t no_offset = UINT64_MAX;
weft::Result<std::size_t> read_full(int fd, std::uint64_t offset, weft::Bytes into,
                                    const std::string& what);

}  // namespace storage
