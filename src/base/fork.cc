#include "base/fork.h"

#include <pthread.h>

#include <bit>
#include <cstdlib>
#include <ctime>
#include <mutex>

#include "base/quiet_thread.h"
#include "base/standard_error.h"

namespace weft::base {

constinit std::atomic<std::uint32_t> OwnerProcess::forks{0};
constinit std::atomic<std::uint64_t> ClosedInChildren::words[];
constinit std::atomic<unsigned> ClosedInChildren::words_used{0};

namespace {

struct Forks {
    std::mutex mutex;
    std::atomic<unsigned> held{
        0};  // Threads that have a ForksHeld; more of them by the mutex only.
    IntrusiveList<ForkWatcher> watchers;
};

constinit thread_local unsigned held_here = 0;

// Never destroyed: a program may fork after the end of main().
Forks& forks() {
    static auto* const one = new Forks;
    return *one;
}
[[maybe_unused]] const Forks& made_at_load = forks();  // Before another thread may fork.

// Returns with the mutex, which is held over the fork: the child finds the list whole.
void before_fork() {
    constexpr timespec pause{0, 20'000};
    const unsigned own = held_here > 0 ? 1 : 0;  // Of a signal's handler that forks.
    forks().mutex.lock();
    while (forks().held.load(std::memory_order_acquire) != own) (void)::nanosleep(&pause, nullptr);
}

void after_fork() { forks().mutex.unlock(); }

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
    forks().watchers.for_each([](ForkWatcher& watcher) { watcher.on_forked(); });
    after_fork();
    become_thread_of_program();  // Last: handlers of signals may run from here on.
}

// When the library is loaded: a thread that does so when it first has need may be cut short by the
// fork of another one.
[[gnu::constructor]] static void watch_forks() {
    (void)::pthread_atfork(before_fork, after_fork, forked_child);
}

ForksHeld::ForksHeld() {
    if (held_here++ > 0) return;
    const std::lock_guard lock(forks().mutex);
    forks().held.fetch_add(1, std::memory_order_relaxed);
}

ForksHeld::~ForksHeld() {
    if (--held_here == 0) forks().held.fetch_sub(1, std::memory_order_release);
}

void ForkWatcher::watch() {
    const std::lock_guard lock(forks().mutex);
    forks().watchers.push_back(*this);
}

void ForkWatcher::unwatch() {
    const std::lock_guard lock(forks().mutex);
    if (is_linked()) unlink();  // Its neighbours belong to other threads.
}

void ClosedInChildren::remove(int fd, const ForksHeld&) {
    if (has(fd)) {
        words[static_cast<unsigned>(fd) / 64].fetch_and(~bit_of(fd), std::memory_order_relaxed);
    }
}

void ClosedInChildren::add(int fd, const ForksHeld&) {
    if (fd < 0 || fd >= fds_max) return;
    const unsigned at = static_cast<unsigned>(fd) / 64;
    unsigned used = words_used.load(std::memory_order_relaxed);
    while (used <= at && !words_used.compare_exchange_weak(used, at + 1)) {
    }
    words[at].fetch_or(bit_of(fd), std::memory_order_relaxed);
}

static void write_forked(const char* operation) {
    put_last_words({"weft: ", operation, ": ", forked_text, "\n"});
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
