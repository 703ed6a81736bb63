// The parent's state that a child made by fork() must neither use nor keep.
//
// Only the forking thread exists in the child. Data that other threads were changing is half
// changed, and locks may be held for ever. So the child destroys none of the parent's objects: it
// closes descriptors, notifies objects (ForkObserver) and leaves them as they are. _Fork() and
// clone() run no handlers and are not detected.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/intrusive_list.h"

namespace weft::base {

// The error text of every operation of a child on an object of its parent.
inline constexpr const char* forked_text =
    "this runtime belongs to the parent process: a child made by fork() or daemon() can't use it; "
    "create the runtime after fork() or daemon(), or exec in the child";
// For an operation that returns no status: writes the text to standard error and aborts. Takes no
// lock.
[[noreturn]] void abort_forked(const char* operation);
// For work that is dropped: writes the text once per process and returns.
void report_forked(const char* operation);

// The process that created an object.
class OwnerProcess {
  public:
    OwnerProcess() : forks_(forks.load(std::memory_order_relaxed)) {}
    // False: this process is a fork()ed child of it. Thread: any. Cost: a load.
    bool is_this() const { return forks_ == number(); }
    // The number of this process; none of its ancestors has it.
    static std::uint32_t number() { return forks.load(std::memory_order_relaxed); }

  private:
    friend void forked_child();
    static constinit std::atomic<std::uint32_t> forks;  // Forks from the first process to this one.
    std::uint32_t forks_;
};

// While one exists, fork() blocks on all other threads. Wraps changes that a child must find
// complete or not begun. Held over system calls that return at once, never over code of the
// program. Thread: any; threads do not wait for each other.
class ForkBlocker {
  public:
    ForkBlocker();
    ~ForkBlocker();
    ForkBlocker(const ForkBlocker&) = delete;
    ForkBlocker& operator=(const ForkBlocker&) = delete;
};

// An object that is notified in each forked child, on the forking thread, before fork() returns in
// the child.
class ForkObserver : public ListNode {
  public:
    ForkObserver() = default;
    virtual ~ForkObserver() = default;
    // Requires: watch() once, and unwatch() by the same process. Without watch(), unwatch() does
    // nothing.
    void watch();
    void unwatch();

  protected:
    friend void forked_child();
    // Must not take a lock.
    virtual void on_forked() noexcept = 0;
};

// The T of this process. A forked child gets a T of its own: its parent's may be locked for ever.
// Never destroyed: threads may still use it when the process ends.
template <class T>
T& per_process() {
    struct Instance {
        OwnerProcess owner;
        T value;
        Instance* parent_instance = nullptr;  // Reachable, so that leak checkers report no leak.
    };
    static constinit std::atomic<Instance*> current{nullptr};
    Instance* instance = current.load(std::memory_order_acquire);
    if (instance && instance->owner.is_this()) return instance->value;
    auto* const created = new Instance;
    created->parent_instance = instance;
    if (current.compare_exchange_strong(instance, created, std::memory_order_acq_rel)) {
        return created->value;
    }
    delete created;  // Another thread was faster.
    return instance->value;
}

// The result of `probe`, which is the same for every call; cached after the first. A static local
// variable would be locked during `probe`, and a child forked then would find it locked for ever.
// Several threads may call `probe` at the same time.
template <bool (*probe)()>
bool probe_once() {
    static constinit std::atomic<int> result{-1};
    int value = result.load(std::memory_order_relaxed);
    if (value < 0) [[unlikely]] {
        value = probe() ? 1 : 0;
        result.store(value, std::memory_order_relaxed);
    }
    return value != 0;
}

// Never destroys `value`, which stays reachable, so that leak checkers report no leak. Takes no
// lock. Thread: any.
template <class T>
void keep_forever(T value) {
    struct Kept {
        T value;
        Kept* next;
    };
    static constinit std::atomic<Kept*> all{nullptr};
    auto* const kept = new Kept{std::move(value), all.load(std::memory_order_relaxed)};
    while (!all.compare_exchange_weak(kept->next, kept, std::memory_order_acq_rel)) {
    }
}

// Descriptors that forked children close at once. While a copy of a socket is open, peers do not
// see its end, its name or port stays in use, and an epoll set continues to report it. `held`:
// created before the descriptor is opened, or kept until it is closed.
class CloseOnFork {
  public:
    static void add(int fd, const ForkBlocker& held);
    static void remove(int fd, const ForkBlocker& held);
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
