// What a mutex guards and which functions need it, checked by clang's thread-safety analysis
// (`STEPS=threads tools/check.sh`); nothing for other compilers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define WEFT_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define WEFT_THREAD_ATTRIBUTE(x)
#endif

#define WEFT_CAPABILITY(name) WEFT_THREAD_ATTRIBUTE(capability(name))
#define WEFT_SCOPED_CAPABILITY WEFT_THREAD_ATTRIBUTE(scoped_lockable)
#define WEFT_GUARDED_BY(x) WEFT_THREAD_ATTRIBUTE(guarded_by(x))
#define WEFT_REQUIRES(...) WEFT_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define WEFT_EXCLUDES(...) WEFT_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define WEFT_ACQUIRE(...) WEFT_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define WEFT_RELEASE(...) WEFT_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define WEFT_ASSERT_HELD(x) WEFT_THREAD_ATTRIBUTE(assert_capability(x))
#define WEFT_UNCHECKED_THREADS WEFT_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace weft::base {

class WEFT_CAPABILITY("mutex") Mutex : public std::mutex {
  public:
    void lock() WEFT_ACQUIRE() { std::mutex::lock(); }
    void unlock() WEFT_RELEASE() { std::mutex::unlock(); }
};

// Holds a mutex while it lives.
class WEFT_SCOPED_CAPABILITY MutexLock {
  public:
    explicit MutexLock(Mutex& mutex) WEFT_ACQUIRE(mutex) : lock_(mutex) {}
    ~MutexLock() WEFT_RELEASE() = default;
    MutexLock(const MutexLock&) = delete;
    MutexLock& operator=(const MutexLock&) = delete;

    void lock() WEFT_ACQUIRE() { lock_.lock(); }
    void unlock() WEFT_RELEASE() { lock_.unlock(); }
    // Releases the mutex while it waits.
    void wait(std::condition_variable& changed) { changed.wait(lock_); }
    // Returns at `end` at the latest.
    void wait_until(std::condition_variable& changed, std::chrono::steady_clock::time_point end) {
        changed.wait_until(lock_, end);
    }

  private:
    std::unique_lock<std::mutex> lock_;
};

// A thread, or whichever thread runs one kind of work at a time, as a capability: what it guards is
// for that thread alone. Costs nothing.
class WEFT_CAPABILITY("thread") ThreadRole {
  public:
    // The calling function runs in the role, for a reason that the analysis can't see.
    void assert_held() const WEFT_ASSERT_HELD(this) {}
    void begin() WEFT_ACQUIRE() WEFT_UNCHECKED_THREADS {}
    void end() WEFT_RELEASE() WEFT_UNCHECKED_THREADS {}
};

}  // namespace weft::base
