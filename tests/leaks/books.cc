#include "leaks/books.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>

#include "support/catch.h"
#include "support/test_timeout.h"

namespace weft::test {
namespace {

// The strings that a table's free slots keep depend on the slots used last, and a pool that two
// peers needed at once keeps one block more. A leak is a block per visit, of hundreds.
constexpr std::ptrdiff_t blocks_more_max = 16;
// tcp keeps 32 send buffers and 8 buffers for partly received messages.
constexpr std::ptrdiff_t large_more_max = 40;
// The C library keeps up to seven free blocks of each size for each thread.
constexpr std::ptrdiff_t c_bytes_more_max = 64 << 10;
// Stacks that the C library keeps for future threads, and pieces of its heap.
constexpr std::size_t mappings_more_max = 8;

constexpr int rounds_max = 3;

constexpr bool is_sanitized = slowness >= 10;  // Its own blocks would count.

}  // namespace

// A sanitizer's thread begins with the first thread of the process, and stays.
static void start_helpers() {
    std::thread([] {}).join();
}

// Waits until nothing has changed for a while: objects opened by the first use may close again, on
// ofi+tcp after 0.3 s, when replies to sent requests may still start.
void Books::open() {
    constexpr Duration quiet = 1s;
    start_helpers();
    const auto begin = std::chrono::steady_clock::now();
    auto since = begin;
    for (auto now = begin; now - since < quiet && now - begin < test_timeout;
         now = std::chrono::steady_clock::now()) {
        const Holdings held = Holdings::now();
        if (!held.same_objects(floor_)) since = now;
        floor_ = held;
        pump_();
    }
    names_ = names_of_objects();
}

void Books::warm() {
    const auto end = std::chrono::steady_clock::now() + test_timeout;
    warm_ = Holdings::now();
    while (!forgiven(warm_).has_no_more_objects(floor_) && std::chrono::steady_clock::now() < end) {
        pump_();
        warm_ = Holdings::now();
    }
    if (!forgiven(warm_).has_no_more_objects(floor_)) fail("warming up", warm_);
    // Sockets that libfabric leaked with its first connection may close with a later connection.
    floor_ = warm_;
    // The last visit may still be closing objects: takes the lowest of some readings.
    for (int readings = 0; readings < 20; ++readings) {
        pump_();
        const Holdings now = Holdings::now();
        if (now.same_objects(floor_) && now.live.blocks <= warm_.live.blocks) warm_ = now;
    }
}

Holdings Books::forgiven(Holdings now) const {
    if (now.descriptors > floor_.descriptors) {
        now.descriptors -= std::min(now.descriptors - floor_.descriptors, slack_.descriptors);
    }
    return now;
}

bool Books::is_back(const Holdings& now, std::size_t visits) const {
    if (!forgiven(now).same_objects(floor_) ||
        now.live.blocks > warm_.live.blocks + blocks_more_max ||
        now.live.bytes > warm_.live.bytes + slack_.bytes ||
        now.live.large_blocks > warm_.live.large_blocks + large_more_max) {
        return false;
    }
    const std::ptrdiff_t c_bytes_more =
        c_bytes_more_max + static_cast<std::ptrdiff_t>(visits) * slack_.c_bytes_per_visit;
    return is_sanitized || (now.other_mappings <= warm_.other_mappings + mappings_more_max &&
                            now.c_bytes <= warm_.c_bytes + c_bytes_more);
}

bool Books::comes_back(std::size_t visits) {
    const auto end = std::chrono::steady_clock::now() + test_timeout / 4;
    while (!is_back(now_, visits) && std::chrono::steady_clock::now() < end) {
        pump_();
        now_ = Holdings::now();
    }
    return is_back(now_, visits);
}

// A pool grows up to its highest use, which comes later on a busy machine. Growth in each of some
// rounds is a leak.
void Books::check(std::size_t visits, const std::function<void()>& run) {
    std::string when = std::to_string(visits) + " more visits";
    for (int round = 1;; ++round) {
        run();
        now_ = Holdings::now();
        if (comes_back(visits)) break;
        if (round == rounds_max) fail(when, now_);
        std::cout << title_ << ", more than before after " << when << ": " << now_.text() << '\n';
        when = "as many again";
        warm();
    }
    std::cout << title_ << ", after " << when << ": " << now_.text() << '\n';
}

void Books::fail(const std::string& after, const Holdings& now) const {
    FAIL(title_ << ": resources left after " << after << "\nat the start: " << floor_.text() << '\n'
                << names_ << "warm: " << warm_.text() << "\nnow: " << now.text() << '\n'
                << names_of_objects());
}

}  // namespace weft::test
