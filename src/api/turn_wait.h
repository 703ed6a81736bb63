// Waits for the work of a runtime's turn, on a thread that does not turn the runtime.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "api/node.h"
#include "core/blocked_turn.h"

namespace weft::api {

// Logs a handler that blocks the runtime's own thread meanwhile. With options.manual a thread of
// the program turns: until one has turned, the waiting thread borrows the turns; afterwards one
// warning is logged when no thread turns for a second. Meanwhile the waiting thread turns the other
// contexts of the runtime that it turned last.
class TurnWait {
  public:
    // `call` waits until `done`, which `mutex` guards; `changed` is notified of it. Aborts when the
    // wait closes a circle (core::BlockedTurn).
    TurnWait(const char* call, Node& node, std::mutex& mutex, std::condition_variable& changed,
             const bool& done);

    // True: done. False: no thread has turned the runtime so far: borrow_turns(). Throws BadResult
    // when exit() has abandoned the runtime.
    bool until_done();
    // Whether this thread turns other contexts of the runtime meanwhile.
    bool turns_others() const { return turns_others_; }
    // Turns until done, or until another thread turns. No effect while another thread turns.
    void borrow_turns();

  private:
    bool is_done() const;
    bool may_borrow() const;
    bool await(Duration longest) const;

    const char* const call_;
    Node& node_;
    std::mutex& mutex_;
    std::condition_variable& changed_;
    const bool& done_;
    const core::BlockedTurn blocked_;
    const bool turns_others_;
    // There was a turn since the last check.
    const std::shared_ptr<std::atomic<bool>> has_turned_ =
        std::make_shared<std::atomic<bool>>(true);
    bool has_logged_ = false, borrow_refused_ = false;
};

}  // namespace weft::api
