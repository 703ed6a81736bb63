// What a child made by fork() must neither use nor keep of its parent's.
//
// Only the forking thread exists in the child; what other threads were changing is half changed,
// and locks may be held for ever. So the child destroys nothing of it: descriptors are closed,
// objects are told (ForkWatcher) and stay as they are. _Fork() and clone() run no handlers and are
// not seen.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/intrusive_list.h"

namespace weft::base {

// For every operation of a child on what its parent made.
inline constexpr const char* forked_text =
    "this runtime belongs to the parent process: a child made by fork() or daemon() can't use it; "
    "create the runtime after fork() or daemon(), or exec in the child";
// For an operation without a result to say it with: writes it to standard error and aborts.
// Takes no lock.
[[noreturn]] void abort_forked(const char* operation);
// The same for work that is dropped: goes on, and writes it once per process.
void report_forked(const char* operation);

// The process that made something.
class OwnerProcess {
  public:
    OwnerProcess() : forks_(forks.load(std::memory_order_relaxed)) {}
    // False: this process is a fork()ed child of it. Thread: any. Cost: a load.
    bool is_this() const { return forks_ == number(); }
    // Of this process: none that it is a child of has it.
    static std::uint32_t number() { return forks.load(std::memory_order_relaxed); }

  private:
    friend void forked_child();
    static constinit std::atomic<std::uint32_t> forks;  // From the first process to this one.
    std::uint32_t forks_;
};

// As long as one exists fork() waits, in whatever thread it is called: around what a child must
// find done or not begun. Held for system calls that return at once, never over code of the
// program. Thread: any; threads do not wait for each other.
class ForksHeld {
  public:
    ForksHeld();
    ~ForksHeld();
    ForksHeld(const ForksHeld&) = delete;
    ForksHeld& operator=(const ForksHeld&) = delete;
};

// Something that is told in each forked child, in the forking thread, before fork() returns there.
class ForkWatcher : public ListNode {
  public:
    ForkWatcher() = default;
    virtual ~ForkWatcher() = default;
    // Requires: watch() once, and unwatch() by the same process. Without watch() that does nothing.
    void watch();
    void unwatch();

  protected:
    friend void forked_child();
    // Calls nothing that takes a lock.
    virtual void on_forked() noexcept = 0;
};

// The T of this process. A forked child gets a T of its own: its parent's may be locked for ever.
// Never destroyed: threads may still use it when the process ends.
template <class T>
T& per_process() {
    struct Made {
        OwnerProcess owner;
        T value;
        Made* of_parent = nullptr;  // Reachable, so that no leak checker takes it for a leak.
    };
    static constinit std::atomic<Made*> current{nullptr};
    Made* made = current.load(std::memory_order_acquire);
    if (made && made->owner.is_this()) return made->value;
    auto* const fresh = new Made;
    fresh->of_parent = made;
    if (current.compare_exchange_strong(made, fresh, std::memory_order_acq_rel)) {
        return fresh->value;
    }
    delete fresh;  // Another thread was faster.
    return made->value;
}

// What `find` finds, the same each time: kept from its first end on. A static variable of a
// function would be locked meanwhile, in a child forked then for ever. Threads may call `find` at
// once.
template <bool (*find)()>
bool found_once() {
    static constinit std::atomic<int> found{-1};
    int value = found.load(std::memory_order_relaxed);
    if (value < 0) [[unlikely]] {
        value = find() ? 1 : 0;
        found.store(value, std::memory_order_relaxed);
    }
    return value != 0;
}

// Never destroyed; reachable, so that no leak checker takes it for a leak. Takes no lock.
// Thread: any.
template <class T>
void keep_for_ever(T value) {
    struct Kept {
        T value;
        Kept* next;
    };
    static constinit std::atomic<Kept*> all{nullptr};
    auto* const kept = new Kept{std::move(value), all.load(std::memory_order_relaxed)};
    while (!all.compare_exchange_weak(kept->next, kept, std::memory_order_acq_rel)) {
    }
}

// Descriptors that forked children close at once: as long as a copy of a socket is open peers do
// not see that it ends, its name or port stays taken, and an epoll set goes on reporting it.
// `held`: since before it was opened, and until it is closed.
class ClosedInChildren {
  public:
    static void add(int fd, const ForksHeld& held);
    static void remove(int fd, const ForksHeld& held);
    static bool has(int fd) {
        return fd >= 0 && fd < fds_max &&
               (words[static_cast<unsigned>(fd) / 64].load(std::memory_order_relaxed) &
                bit_of(fd)) != 0;
    }

  private:
    friend void forked_child();
    static constexpr std::uint64_t bit_of(int fd) {
        return std::uint64_t{1} << (static_cast<unsigned>(fd) % 64);
    }
    static constexpr int fds_max = 1 << 20;  // Higher ones stay open in children.
    static constinit std::atomic<std::uint64_t> words[fds_max / 64];
    static constinit std::atomic<unsigned> words_used;
};

}  // namespace weft::base
