// The place in which a leak test serves: a directory of its own, which may contain only names of
// sockets, and an address for each transport.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "api/runtime_impl.h"
#include "leaks/live_memory.h"
#include "support/catch.h"
#include "support/rdma_host.h"
#include "support/seed.h"
#include "support/test_timeout.h"
#include "support/usable.h"

namespace weft::test {

class Place {
  public:
    // Construct before the first runtime.
    Place() {
        char folder[] = "/tmp/weft-leaks-XXXXXX";
        REQUIRE(::mkdtemp(folder));
        folder_ = folder;
        REQUIRE(::setenv("XDG_RUNTIME_DIR", folder, 1) == 0);
    }
    ~Place() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    std::string uri(const std::string& scheme) const {
        if (scheme == "sm") return "sm://leaks";
        if (scheme == "unix") return "unix://" + folder_ + "/leaks";
        if (scheme == "verbs") return rdma_uri().value();
        return scheme + "://127.0.0.1:0";
    }
    // Files in this directory, sockets and locks, and weft's files in the directory of shared
    // memory.
    std::vector<std::string> files() const {
        namespace fs = std::filesystem;
        std::vector<std::string> found;
        for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
            if (!entry.is_directory()) found.push_back(entry.path());
        }
        for (const auto& entry : fs::directory_iterator("/dev/shm")) {
            const std::string path = entry.path();
            if (path.find("weft") != std::string::npos) found.push_back(path);
        }
        return found;
    }

  private:
    std::string folder_;
};

// True: no timer is due, so lingering connections have closed. (ofi+tcp keeps connections for 0.1
// s.)
inline bool is_quiet(Runtime& runtime) {
    bool quiet = true;
    for (const auto& node : impl_of(runtime).nodes) {
        node->on_context([&] {
            for (const auto& slot : node->context.endpoints()) {
                quiet = quiet && slot->endpoint->next_deadline() == never;
            }
        });
    }
    return quiet;
}

// Turns for a millisecond.
inline void pump(Runtime& runtime) {
    runtime.turn_until([] { return false; }, 1ms);
}

// Waits for a condition that no event reports. False: not within the timeout.
template <class Done>
bool soon(Runtime& runtime, Done&& done) {
    const auto end = std::chrono::steady_clock::now() + test_timeout;
    while (!done()) {
        if (std::chrono::steady_clock::now() > end) return false;
        pump(runtime);
    }
    return true;
}

// Runs `count` visits or kills, from a seed that a failure prints.
template <class Those>
void run_over(const std::string& scheme, std::size_t count) {
    if (!is_in_this_build(scheme)) return;
    if (scheme == "verbs" && !rdma_uri_or_note()) return;
    steady_malloc();
    const std::uint64_t seed = seed_of(0);
    INFO("TEST_SEED=" << seed);
    Those(scheme, seed).run(count);
}

}  // namespace weft::test
