// What a process that stays held before its peers came, and holds after they went.
#pragma once

#include <functional>
#include <string>

#include "leaks/holdings.h"

namespace weft::test {

// What may be more after a run than when it was warm, besides what books.cc allows everybody.
struct Slack {
    std::ptrdiff_t bytes = 0;              // Pools that chance makes grow late.
    std::ptrdiff_t c_bytes_per_visit = 0;  // What libfabric forgets,
    std::size_t descriptors = 0;           // and how many of its sockets in a run.
};

class Books {
  public:
    // `pump`: those who stay do what is due, for a millisecond at most.
    Books(std::string title, Slack slack, std::function<void()> pump)
        : title_(std::move(title)), slack_(slack), pump_(std::move(pump)) {}

    // Nobody is connected, and all that opens with the first use is open. Descriptors, threads and
    // memory files must come back to exactly this.
    void open();
    // A load like the one to come has filled every pool. Memory must come back to this, but for
    // what is said in the .cc.
    void warm();
    // All is as it was, now or soon; fails the test and says what is not. So many visits later,
    // which run() makes. What has grown once may be a pool that was never so full, and is counted
    // again: what grows again is a leak.
    void check(std::size_t visits, const std::function<void()>& run);

  private:
    Holdings forgiven(Holdings now) const;
    bool is_back(const Holdings& now, std::size_t visits) const;
    bool comes_back(std::size_t visits);
    void fail(const std::string& after, const Holdings& now) const;

    const std::string title_;
    const Slack slack_;
    const std::function<void()> pump_;
    Holdings floor_, warm_, now_;
    std::string names_;  // Of the floor.
};

}  // namespace weft::test
