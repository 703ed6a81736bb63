// Descriptors, and errors of system calls as statuses. All of it may block: call it by
// weft::offload.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <weft/bytes.h>
#include <weft/result.h>
#include <weft/time.h>

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

// Makes the names in a directory durable. 0, also where the file system can't (CIFS and shared
// folders of virtual machines, say), which keeps them as durable as it keeps names; else -1, errno.
int sync_directory(int fd);

// All of `bytes`, or an error. `what` names the file in it.
weft::Status write_all(int fd, weft::ByteView bytes, const std::string& what);
// Of a regular file, until `into` is full or the file ends; returns how much that was.
weft::Result<std::size_t> read_full(int fd, std::uint64_t offset, weft::Bytes into,
                                    const std::string& what);

// What read_for() read: less than there was room for without its end when the time was over.
struct ReadPart {
    std::size_t bytes = 0;
    bool is_at_end = false;
};
// From where the descriptor stands: waits for a pipe, socket or terminal for `time` at most.
weft::Result<ReadPart> read_for(int fd, weft::Bytes into, weft::Duration time,
                                const std::string& what);

// What a write to a file changes: its size in bytes and its time of modification in ns. A write
// that keeps the size within the same tick of the file system's clock (1 to 10 ms) as the write
// before it does not show.
struct FileStamp {
    std::uint64_t size = 0;
    std::int64_t mtime_ns = 0;

    friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// Of what stat() says (a template, as its header gives the name `stat` to all who include it).
template <class Stat>
FileStamp stamp_of(const Stat& file) {
    return {static_cast<std::uint64_t>(file.st_size),
            std::int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec};
}
// ABORTED: `what` changed while it was read.
weft::Status changed(const std::string& what, const FileStamp& before, const FileStamp& now);

// Detects that a regular file changes while it is read from where its descriptor stands to its end.
// Of pipes, sockets and devices every byte is right.
class SourceCheck {
  public:
    // As the file is now. Errors: as errno_status(). `what` names the file in it.
    static weft::Result<SourceCheck> begin(int fd, const std::string& what);
    // After a read; `read`: bytes read since begin(); `at_end`: the last read ended the file.
    // Errors: ABORTED when size or time differ from those at begin(), or the file ended too early.
    weft::Status check(std::uint64_t read, bool at_end) const;

  private:
    int fd_ = -1;
    std::string what_;
    std::optional<FileStamp> before_;  // None: no regular file.
    std::uint64_t offset_ = 0;         // Where reading began.
};

}  // namespace storage
