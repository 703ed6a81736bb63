#include "base/fork.h"

#include <pthread.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace weft::base {

constinit std::atomic<std::uint32_t> OwnerProcess::forks{0};
constinit std::atomic<std::uint64_t> ClosedInChildren::words[];
constinit std::atomic<unsigned> ClosedInChildren::words_used{0};

namespace {

struct Watchers {
    std::mutex mutex;
    IntrusiveList<ForkWatcher> all;
};

// Never destroyed: a program may fork after the end of main().
Watchers& watchers() {
    static auto* const one = new Watchers;
    return *one;
}

}  // namespace

void forked_child() {
    OwnerProcess::forks.fetch_add(1, std::memory_order_relaxed);
    const unsigned used = ClosedInChildren::words_used.load(std::memory_order_relaxed);
    for (unsigned at = 0; at < used; ++at) {
        std::uint64_t word = ClosedInChildren::words[at].exchange(0, std::memory_order_relaxed);
        for (; word != 0; word &= word - 1) {
            ::close(static_cast<int>(at * 64) + std::countr_zero(word));
        }
    }
    watchers().all.for_each([](ForkWatcher& watcher) { watcher.on_forked(); });
    watchers().mutex.unlock();
}

// Held over the fork, so that the child finds the list whole and the mutex free.
static void watch_forks() {
    static const int registered = ::pthread_atfork([] { watchers().mutex.lock(); },
                                                   [] { watchers().mutex.unlock(); }, forked_child);
    (void)registered;
}

OwnerProcess::OwnerProcess() : forks_(forks.load(std::memory_order_relaxed)) { watch_forks(); }

void ForkWatcher::watch() {
    watch_forks();
    const std::lock_guard lock(watchers().mutex);
    watchers().all.push_back(*this);
}

void ForkWatcher::unwatch() {
    const std::lock_guard lock(watchers().mutex);
    unlink();
}

void ClosedInChildren::add(int fd) {
    if (fd < 0 || fd >= fds_max) return;
    watch_forks();
    const unsigned at = static_cast<unsigned>(fd) / 64;
    unsigned used = words_used.load(std::memory_order_relaxed);
    while (used <= at && !words_used.compare_exchange_weak(used, at + 1)) {
    }
    words[at].fetch_or(std::uint64_t{1} << (static_cast<unsigned>(fd) % 64),
                       std::memory_order_relaxed);
}

static void write_forked(const char* operation) {
    for (const char* part : {"weft: ", operation, ": ", forked_text, "\n"}) {
        [[maybe_unused]] const auto put = ::write(STDERR_FILENO, part, std::strlen(part));
    }
}

void abort_forked(const char* operation) {
    write_forked(operation);
    std::abort();
}

void report_forked(const char* operation) {
    static constinit std::atomic<bool> reported{false};
    if (!reported.exchange(true)) write_forked(operation);
}

}  // namespace weft::base
