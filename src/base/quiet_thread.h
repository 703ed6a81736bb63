// Threads that weft starts: no signal is delivered on them, they are the program's own.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace weft::base {

// Blocks every signal on this thread while it lives; threads started meanwhile keep that.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  private:
    sigset_t before_;
};

// Throws std::system_error when the system gives no thread.
template <class Body>
std::thread start_quiet_thread(Body&& body) {
    const SignalsBlocked blocked;
    return std::thread(std::forward<Body>(body));
}

}  // namespace weft::base
