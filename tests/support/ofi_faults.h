// Makes libfabric refuse what it would take. Stands between weft and the library: its fi_fabric()
// is called first and puts its own functions into the tables of what is opened.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <limits>

namespace weft::test {

// How many of the next messages libfabric refuses with this error, when it has taken so many.
extern std::atomic<int> ofi_refusals;
extern std::atomic<int> ofi_taken_before;
extern std::atomic<int> ofi_error;

// While it is not 0: what libfabric says to those who register memory, or who end that.
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

// While it lives no endpoint reads a completion; then each reads all that came meanwhile at once,
// in the order they came. One thread only.
class OfiHoldsCompletions {
  public:
    OfiHoldsCompletions();
    ~OfiHoldsCompletions();
    OfiHoldsCompletions(const OfiHoldsCompletions&) = delete;
    OfiHoldsCompletions& operator=(const OfiHoldsCompletions&) = delete;

    std::size_t count() const;  // Of all endpoints.
};

}  // namespace weft::test
