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
#include <string>

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
    OwnerProcess();
    // False: this process is a fork()ed child of it. Thread: any. Cost: a load.
    bool is_this() const { return forks_ == forks.load(std::memory_order_relaxed); }

  private:
    friend void forked_child();
    static constinit std::atomic<std::uint32_t> forks;  // From the first process to this one.
    const std::uint32_t forks_;
};

// Something that is told in each forked child, in the forking thread, before fork() returns there.
class ForkWatcher : public ListNode {
  public:
    ForkWatcher() = default;
    virtual ~ForkWatcher() = default;
    // Requires: watch() and unwatch() once each, by the same process.
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

// Descriptors that forked children close at once: as long as a copy of a socket is open peers do
// not see that it ends, its name or port stays taken, and an epoll set goes on reporting it.
class ClosedInChildren {
  public:
    static void add(int fd);
    // Before it is closed here.
    static void remove(int fd) {
        if (fd < 0 || fd >= fds_max) return;
        std::atomic<std::uint64_t>& word = words[static_cast<unsigned>(fd) / 64];
        const std::uint64_t bit = std::uint64_t{1} << (static_cast<unsigned>(fd) % 64);
        if ((word.load(std::memory_order_relaxed) & bit) != 0) {
            word.fetch_and(~bit, std::memory_order_relaxed);
        }
    }

  private:
    friend void forked_child();
    static constexpr int fds_max = 1 << 20;  // Higher ones stay open in children.
    static constinit std::atomic<std::uint64_t> words[fds_max / 64];
    static constinit std::atomic<unsigned> words_used;
};

}  // namespace weft::base
