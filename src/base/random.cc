#include "base/random.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>

#include "base/assert.h"
#include "base/unique_fd.h"

namespace weft::base {

namespace {

// For seccomp profiles that refuse getrandom(2).
bool read_device(std::uint64_t& value) {
    const UniqueFd device(::open("/dev/urandom", O_RDONLY | O_CLOEXEC));
    ssize_t bytes = -1;
    do {
        bytes = ::read(device.get(), &value, sizeof value);
    } while (bytes < 0 && errno == EINTR);
    return bytes == sizeof value;
}

}  // namespace

std::uint64_t SeededRandom::next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

std::uint64_t KernelRandom::next() {
    std::uint64_t value = 0;
    // Requests up to 256 bytes are not interrupted once the pool is ready (getrandom(2)).
    while (getrandom(&value, sizeof value, 0) != sizeof value) {
        if (errno == EINTR) continue;
        if (read_device(value)) break;
        abort_misused("random numbers",
                      "the system refuses getrandom() and /dev/urandom can't be read; allow one "
                      "of them, since keys of memory must not be guessed");
    }
    return value;
}

}  // namespace weft::base
