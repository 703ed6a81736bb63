// Makes libfabric refuse operations. This fi_fabric() is called instead of the library's, calls it,
// and puts its own functions into the tables of the opened objects.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <limits>

namespace weft::test {

// Number of next messages that libfabric refuses with ofi_error, after it has accepted
// ofi_taken_before.
extern std::atomic<int> ofi_refusals;
extern std::atomic<int> ofi_taken_before;
extern std::atomic<int> ofi_error;

// Unless 0: the error of memory registrations, and of their ends.
extern std::atomic<int> ofi_register_error;
extern std::atomic<int> ofi_release_error;

class OfiRefuses {
  public:
    explicit OfiRefuses(int times = std::numeric_limits<int>::max(), int after = 0,
                        int error = EAGAIN) {
        ofi_taken_before = after;
        ofi_error = error;
        ofi_refusals = times;
    }
    ~OfiRefuses() { ofi_refusals = 0; }
    OfiRefuses(const OfiRefuses&) = delete;
    OfiRefuses& operator=(const OfiRefuses&) = delete;
};

// During its lifetime no endpoint reads a completion; then each reads all accumulated completions
// at once, in their order. One thread only.
class OfiHoldsCompletions {
  public:
    OfiHoldsCompletions();
    ~OfiHoldsCompletions();
    OfiHoldsCompletions(const OfiHoldsCompletions&) = delete;
    OfiHoldsCompletions& operator=(const OfiHoldsCompletions&) = delete;

    std::size_t count() const;  // Of all endpoints.
};

}  // namespace weft::test
