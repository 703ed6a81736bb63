// Waits for what a turn of a runtime does, on a thread that does not turn it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "api/node.h"
#include "core/blocked_turn.h"

namespace weft::api {

// Does not wait without a word: names a handler that blocks the runtime's own thread; with
// options.manual, where a thread of the program's turns, it takes the turns itself as long as no
// thread has turned, and else logs one warning when none turns for a second.
class TurnWait {
  public:
    // `call` waits until `done`, which `mutex` guards, and whose change is notified. Aborts when
    // the wait closes a circle (core::BlockedTurn).
    TurnWait(const char* call, Node& node, std::mutex& mutex, std::condition_variable& changed,
             const bool& done);

    // Throws BadResult: exit() has left the runtime. True: done. False: no thread has turned the
    // runtime so far: borrow_turns().
    bool until_done();
    // Turns until done, or until another thread does so. Nothing when one does so just now.
    void borrow_turns();

  private:
    bool is_done() const;
    bool may_borrow() const;

    const char* const call_;
    Node& node_;
    std::mutex& mutex_;
    std::condition_variable& changed_;
    const bool& done_;
    const core::BlockedTurn blocked_;
    // A turn since the last look.
    const std::shared_ptr<std::atomic<bool>> has_turned_ =
        std::make_shared<std::atomic<bool>>(true);
    bool has_logged_ = false, is_refused_ = false;
};

}  // namespace weft::api
