#include "base/random.h"

#include <sys/random.h>

#include "base/assert.h"

namespace weft::base {

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
    }
    return value;
}

}  // namespace weft::base
