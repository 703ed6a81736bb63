// Waits in a circle: a handler of one runtime that waits for another, whose handler waits for the
// first. Neither turns meanwhile, so neither wait would end.
#pragma once

#include <mutex>
#include <vector>

#include "base/intrusive_list.h"
#include "core/context.h"

namespace weft::core {

// While it lives the calling thread waits, in a turn of one context or several, for what another
// context's thread does. Made outside of a turn, it does nothing.
//
// Each wait is in one list of the process. The wait that would close a circle, of any length,
// aborts the program and names all runtimes in it. A wait in offloaded work is in no turn and is
// not seen, nor is one for a peer's reply.
class BlockedTurn : public base::ListNode {
  public:
    // `call` waits for `context` until `is_done`, which `mutex` guards. Neither is locked by the
    // caller here or in the destructor.
    BlockedTurn(const char* call, const Context& context, std::mutex& mutex, const bool& is_done);
    ~BlockedTurn();
    BlockedTurn(const BlockedTurn&) = delete;
    BlockedTurn& operator=(const BlockedTurn&) = delete;

    // The thread of that context waits so for another one, in its turn.
    static bool is_any_of(const Executor& context);

  private:
    bool blocks(const Executor& context) const;
    void check_circle(const char* call) const;

    const std::vector<Executor*> blocked_;  // The turns that this thread is in.
    const Context& awaited_;
    std::mutex& mutex_;
    const bool& is_done_;
};

}  // namespace weft::core
