// Circular waits: a handler of one runtime waits for another runtime, and a handler there waits for
// the first. Neither turns meanwhile, so neither wait would end.
#pragma once

#include <mutex>
#include <vector>

#include "base/intrusive_list.h"
#include "core/context.h"

namespace weft::core {

// While it lives, the calling thread waits, in a turn of one context or several, for work of
// another context's thread. Created outside of a turn, it has no effect.
//
// Each wait is in one list of the process. A wait that would close a circle, of any length, aborts
// the program and names all runtimes in it. Not detected: waits in offloaded work, which is in no
// turn, and waits for the reply of a peer.
class BlockedTurn : public base::ListNode {
  public:
    // `call` waits for `context` until `is_done`, which `mutex` guards. Requires: the caller does
    // not hold `mutex`, here and in the destructor.
    BlockedTurn(const char* call, const Context& context, std::mutex& mutex, const bool& is_done);
    ~BlockedTurn();
    BlockedTurn(const BlockedTurn&) = delete;
    BlockedTurn& operator=(const BlockedTurn&) = delete;

    // Whether a turn of `context` is blocked by such a wait.
    static bool is_context_blocked(const Executor& context);

  private:
    bool blocks(const Executor& context) const;
    void check_deadlock(const char* call, base::IntrusiveList<BlockedTurn>& all) const;

    const std::vector<Executor*> blocked_;  // The contexts that this thread is in.
    const Context& awaited_;
    std::mutex& mutex_;
    const bool& is_done_;
};

}  // namespace weft::core
