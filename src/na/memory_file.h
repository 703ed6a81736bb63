// Sealed memory files (memfd): memory that processes share and that no peer can truncate.
//
// A file with a sealed size cannot be truncated under a mapping, so touching it never raises
// SIGBUS. A file that a peer sent is validated here before any of it is mapped.
#pragma once

#include <cstddef>
#include <utility>

#include <weft/bytes.h>
#include <weft/result.h>

#include "base/unique_fd.h"

namespace weft::na {

// Owner of an address range.
class Mapping {
  public:
    Mapping() = default;
    Mapping(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
    Mapping(Mapping&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Mapping& operator=(Mapping&& other) noexcept;
    ~Mapping();

    std::byte* data() const { return data_; }
    std::size_t size() const { return bytes_; }
    explicit operator bool() const { return data_ != nullptr; }

  private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

enum class Writable : bool { no, yes };

// A sparse file of that size, not sealed yet. Errors: RESOURCE_EXHAUSTED.
Result<base::UniqueFd> make_memory_file(const char* name, std::size_t bytes);

enum class FutureWrite : bool { forbidden, allowed };

// Fixes the size for good. `forbidden`: in addition `fd`, and every copy of it, can't be mapped
// writable from now on. Before Linux 5.1 a process of this user may open the file for writing
// again.
Status seal(base::UniqueFd& fd, FutureWrite future_write);

// Errors: RESOURCE_EXHAUSTED.
Result<Mapping> map_file(int fd, std::size_t bytes, Writable writable);
// As map_file(), writable, for a file of which only a small part may be touched: only touched pages
// cost memory, also under mlockall(MCL_FUTURE). map_sparse_at() replaces the mapping at `at`.
Result<Mapping> map_sparse(int fd, std::size_t bytes);
Status map_sparse_at(void* at, int fd, std::size_t bytes);

// Validates a descriptor that a peer sent and returns the file's size: an ordinary memory file with
// a sealed size within the bounds. Errors: DATA_LOSS, naming `what`.
Result<std::size_t> validate_memory_file(int fd, const char* what, std::size_t bytes_min,
                                         std::size_t bytes_max);

// "what: reason of errno".
std::string errno_text(std::string what);
// As errno_text(), for mmap(): EAGAIN, which mmap() returns only under mlockall(), gets a remedy.
std::string mapping_text(std::string what);

}  // namespace weft::na
