#include "base/fork.h"

#include <pthread.h>

#include <bit>
#include <cstdlib>
#include <ctime>
#include <mutex>

#include "base/assert.h"
#include "base/internal_thread.h"
#include "base/standard_error.h"

namespace weft::base {

constinit std::atomic<std::uint32_t> OwnerProcess::forks{0};
constinit std::atomic<std::uint64_t> CloseOnFork::words[];
constinit std::atomic<unsigned> CloseOnFork::words_used{0};

namespace {

struct Forks {
    std::mutex mutex;
    std::atomic<unsigned> held{0};  // Threads with a ForkBlocker; increased under the mutex only.
    IntrusiveList<ForkObserver> watchers;
};

constinit thread_local unsigned blockers_here = 0;

// Never destroyed: a program may fork after the end of main().
Forks& forks() {
    static auto* const one = new Forks;
    return *one;
}
[[maybe_unused]] const Forks& made_at_load = forks();  // Before another thread may fork.

// Returns with the mutex locked over the fork: the child finds the list consistent.
void before_fork() {
    constexpr timespec pause{0, 20'000};
    const unsigned own = blockers_here > 0 ? 1 : 0;  // A signal handler forked within one.
    forks().mutex.lock();
    while (forks().held.load(std::memory_order_acquire) != own) (void)::nanosleep(&pause, nullptr);
}

void after_fork() { forks().mutex.unlock(); }

}  // namespace

void forked_child() {
    OwnerProcess::forks.fetch_add(1, std::memory_order_relaxed);
    const unsigned used = CloseOnFork::words_used.load(std::memory_order_relaxed);
    for (unsigned at = 0; at < used; ++at) {
        std::uint64_t word = CloseOnFork::words[at].exchange(0, std::memory_order_relaxed);
        for (; word != 0; word &= word - 1) {
            ::close(static_cast<int>(at * 64) + std::countr_zero(word));
        }
    }
    forks().watchers.for_each([](ForkObserver& watcher) { watcher.on_forked(); });
    after_fork();
    restore_program_thread();  // Last: signal handlers may run afterwards.
}

// Registered when the library is loaded: a later registration may be interrupted by the fork of
// another thread.
[[gnu::constructor]] static void watch_forks() {
    (void)::pthread_atfork(before_fork, after_fork, forked_child);
}

ForkBlocker::ForkBlocker() {
    if (blockers_here++ > 0) return;
    const std::lock_guard lock(forks().mutex);
    forks().held.fetch_add(1, std::memory_order_relaxed);
}

ForkBlocker::~ForkBlocker() {
    WEFT_ASSERT(blockers_here != 0);
    if (--blockers_here == 0) forks().held.fetch_sub(1, std::memory_order_release);
}

void ForkObserver::watch() {
    const std::lock_guard lock(forks().mutex);
    WEFT_ASSERT(!is_linked());
    forks().watchers.push_back(*this);
}

void ForkObserver::unwatch() {
    const std::lock_guard lock(forks().mutex);
    if (is_linked()) unlink();  // Under the mutex: the neighbours belong to other threads.
}

void CloseOnFork::remove(int fd, const ForkBlocker&) {
    if (has(fd)) {
        words[static_cast<unsigned>(fd) / 64].fetch_and(~bit_of(fd), std::memory_order_relaxed);
    }
}

void CloseOnFork::add(int fd, const ForkBlocker&) {
    if (fd < 0 || fd >= fds_max) return;
    const unsigned at = static_cast<unsigned>(fd) / 64;
    unsigned used = words_used.load(std::memory_order_relaxed);
    while (used <= at && !words_used.compare_exchange_weak(used, at + 1)) {
    }
    words[at].fetch_or(bit_of(fd), std::memory_order_relaxed);
}

static void write_forked(const char* operation) {
    write_fatal_message({"weft: ", operation, ": ", forked_text, "\n"});
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
