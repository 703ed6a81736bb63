// What a mutex guards and which functions need it, checked by clang's thread-safety analysis
// (`STEPS=threads tools/check.sh`); nothing for other compilers.
#pragma once

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
#define WEFT_RETURNS_CAPABILITY(x) WEFT_THREAD_ATTRIBUTE(lock_returned(x))
#define WEFT_UNCHECKED_THREADS WEFT_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace weft::base {

class WEFT_CAPABILITY("mutex") Mutex {
  public:
    void lock() WEFT_ACQUIRE() { mutex_.lock(); }
    void unlock() WEFT_RELEASE() { mutex_.unlock(); }

  private:
    friend class MutexLock;
    std::mutex mutex_;
};

// Holds a mutex while it lives.
class WEFT_SCOPED_CAPABILITY MutexLock {
  public:
    explicit MutexLock(Mutex& mutex) WEFT_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
    ~MutexLock() WEFT_RELEASE() {}
    MutexLock(const MutexLock&) = delete;
    MutexLock& operator=(const MutexLock&) = delete;

    void lock() WEFT_ACQUIRE() { lock_.lock(); }
    void unlock() WEFT_RELEASE() { lock_.unlock(); }
    // Releases the mutex while it waits.
    void wait(std::condition_variable& changed) { changed.wait(lock_); }
    // False: `duration` has passed.
    template <class Duration>
    bool wait_for(std::condition_variable& changed, Duration duration) {
        return changed.wait_for(lock_, duration) == std::cv_status::no_timeout;
    }
    template <class TimePoint>
    bool wait_until(std::condition_variable& changed, TimePoint end) {
        return changed.wait_until(lock_, end) == std::cv_status::no_timeout;
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
