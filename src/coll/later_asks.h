// What collectives ask of members, bounded in each turn: a request may name thousands of members,
// whose questions may fail at once, and each failure asks those below.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "coll/known.h"
#include "core/context.h"

namespace weft::coll {

class Operation;

// Operations with questions that are put off to later turns. Peers that brought them take turns, a
// question each. Thread: the context's.
class LaterAsks {
  public:
    // Of members that are asked for the sake of peers, or whose failure is concluded, in one turn.
    static constexpr std::int64_t turn_most = 64;
    // Copying so many bytes costs about what asking one more member does.
    static constexpr std::size_t bytes_for_one = 128 << 10;

    explicit LaterAsks(core::Context& context);
    LaterAsks(const LaterAsks&) = delete;
    LaterAsks& operator=(const LaterAsks&) = delete;
    ~LaterAsks() { clear(); }

    // Whether one more may be asked in this turn, with that many bytes: it then counts.
    bool may_ask(std::size_t bytes);
    // One more is asked, or its failure concluded.
    void count(std::size_t bytes) {
        left_ -= 1 + static_cast<std::int64_t>(bytes / bytes_for_one);
        ++walked_;
        most_in_turn_ = std::max(most_in_turn_, ++in_turn_);
    }
    // It goes on (Operation::go_on()) in later turns. Requires: it is not in here.
    void add(std::shared_ptr<Operation> operation);
    void clear();
    // Members asked and failures concluded so far.
    std::uint64_t walked() const { return walked_; }
    std::uint64_t most_in_turn() const { return most_in_turn_; }

  private:
    struct Next : core::Deferred {
        LaterAsks* of = nullptr;
    };

    void begin_turn();
    void run();
    std::shared_ptr<Operation> take_next();

    core::Context& context_;
    Next next_;
    std::map<AskerId, std::deque<std::shared_ptr<Operation>>> waiting_;
    AskerId last_;      // That had its turn.
    TimePoint turn_{};  // Of which:
    std::int64_t left_ = 0;
    std::uint64_t in_turn_ = 0;
    std::uint64_t walked_ = 0;
    std::uint64_t most_in_turn_ = 0;
};

}  // namespace weft::coll
