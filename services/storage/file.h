// Descriptors, and errors of system calls as statuses. All functions may block: call them by
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

// Closes the descriptor that it owns.
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

// The status of `error`, an errno, with the text "WHAT: ERROR": "can't open '/data': Permission
// denied". NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk, quota, descriptors), DATA_LOSS
// (the device failed), INVALID_ARGUMENT (a name), FAILED_PRECONDITION (something is in the way: a
// file, a directory, a read-only file system), else INTERNAL.
weft::Status errno_status(int error, std::string what);

// The path at which a file of this name would be stored: the name of a link resolves to its target.
// Errors: FAILED_PRECONDITION for a device, a fifo, a directory: no file may replace them.
weft::Result<std::string> resolve_target(const std::string& path);

// Makes the names in a directory durable. Returns 0, also when the file system does not support
// that (e.g. CIFS and shared folders of virtual machines) and so decides itself how durable names
// are; else -1 and errno.
int sync_directory(int fd);

// Writes all of `bytes`, or returns an error. `what` names the file in it.
weft::Status write_all(int fd, weft::ByteView bytes, const std::string& what);
// Reads a regular file until `into` is full or the file ends; returns the number of bytes.
weft::Result<std::size_t> read_full(int fd, std::uint64_t offset, weft::Bytes into,
                                    const std::string& what);

// Result of read_for(): fewer bytes than the buffer holds, without the end of the file, when the
// time expired.
struct ReadPart {
    std::size_t bytes = 0;
    bool is_at_end = false;
};
// Reads at the descriptor's current position: waits for a pipe, socket or terminal for at most
// `time`.
weft::Result<ReadPart> read_for(int fd, weft::Bytes into, weft::Duration time,
                                const std::string& what);

// The attributes that a write to a file changes: its size in bytes and its time of modification in
// ns. A write that keeps the size within the same tick of the file system's clock (1 to 10 ms) as
// the write before it goes undetected.
struct FileStamp {
    std::uint64_t size = 0;
    std::int64_t mtime_ns = 0;

    friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// From a result of stat() (a template, because its header gives the name `stat` to every file that
// includes it).
template <class Stat>
FileStamp stamp_of(const Stat& file) {
    return {static_cast<std::uint64_t>(file.st_size),
            std::int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec};
}
// ABORTED: `what` changed while it was read.
weft::Status changed(const std::string& what, const FileStamp& before, const FileStamp& now);

// Detects that a regular file changes while it is read from its descriptor's position to its end.
// Pipes, sockets and devices pass every check.
class SourceCheck {
  public:
    // Records the file as it is now. Errors: as errno_status(). `what` names the file in it.
    static weft::Result<SourceCheck> begin(int fd, const std::string& what);
    // Called after a read; `read`: bytes read since begin(); `at_end`: the last read reached the
    // file's end. Errors: ABORTED when size or time differ from those at begin(), or the file ended
    // too early.
    weft::Status check(std::uint64_t read, bool at_end) const;

  private:
    int fd_ = -1;
    std::string what_;
    std::optional<FileStamp> before_;  // Empty: not a regular file.
    std::uint64_t offset_ = 0;         // The offset at which reading began.
};

}  // namespace storage
