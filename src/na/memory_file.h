// Sealed memory files (memfd): memory that processes share and that no peer can take away.
//
// A file whose size is sealed cannot be truncated under a mapping, so touching it never raises
// SIGBUS. A file that a peer hands us is judged here before anything of it is mapped.
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

// Fixes the size for ever. `forbidden`: besides, `fd` can't be mapped writable from now on, and nor
// can what others get of it; before Linux 5.1 a process of this user may open it anew.
Status seal(base::UniqueFd& fd, FutureWrite future_write);

// Errors: RESOURCE_EXHAUSTED.
Result<Mapping> map_file(int fd, std::size_t bytes, Writable writable);
// The same, writable, of a file of which little may ever be touched: under mlockall(MCL_FUTURE),
// too, only touched pages cost memory. map_sparse_at: in the place of what is mapped there.
Result<Mapping> map_sparse(int fd, std::size_t bytes);
Status map_sparse_at(void* at, int fd, std::size_t bytes);

// Judges a descriptor that a peer sent and returns its size: ordinary memory file, size sealed and
// within bounds. Errors: DATA_LOSS, naming `what`.
Result<std::size_t> judge_memory_file(int fd, const char* what, std::size_t bytes_min,
                                      std::size_t bytes_max);

// "what: reason of errno".
std::string errno_text(std::string what);
// The same for mmap(), which says EAGAIN under mlockall() only.
std::string mapping_text(std::string what);

}  // namespace weft::na
