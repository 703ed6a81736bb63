// Compares the resources that a process holds before its peers connect and after they disconnect.
#pragma once

#include <functional>
#include <string>

#include "leaks/holdings.h"

namespace weft::test {

// Allowed growth between `warm` and the end of a run, besides the constants of books.cc.
struct Slack {
    std::ptrdiff_t bytes = 0;              // Pools that grow late by chance.
    std::ptrdiff_t c_bytes_per_visit = 0;  // Memory that libfabric leaks per visit,
    std::size_t descriptors = 0;           // and its leaked sockets per run.
};

class Books {
  public:
    // `pump`: turns the remaining runtimes, for a millisecond at most.
    Books(std::string title, Slack slack, std::function<void()> pump)
        : title_(std::move(title)), slack_(slack), pump_(std::move(pump)) {}

    // Call when no peer is connected and every object of the first use is open. Descriptors,
    // threads and memory files must return to exactly this state.
    void open();
    // Call when a load like the one to come has filled every pool. Memory must return to this
    // state, but for the constants in the .cc.
    void warm();
    // Checks the state, now or soon, after `visits` more visits, which run() makes; fails the test
    // with the differences. Growth in one round may be a pool with a new maximum, so it is measured
    // again: growth in every round is a leak.
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
    std::string names_;  // Of floor_.
};

}  // namespace weft::test
