// Chooses one of a server's addresses, without I/O, from the results of connection attempts.
//
// An address of this host (sm, unix) is only a name, and another server may have taken it. It is
// used when its process has the incarnation that a network address has shown before (stage
// `identify`), or when the server has no network address. Otherwise the fastest network is used,
// then the next fastest. docs/adr/0005-best-path.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <weft/status.h>

#include "base/state.h"
#include "na/provider.h"

namespace weft::core {

class AddressSelector {
  public:
    // Among equally fast addresses the first is preferred. Requires: at least one address.
    explicit AddressSelector(std::vector<na::Address> addresses);

    enum class Action : std::uint8_t {
        connect,   // To address(); with `keep_current` the current connection is kept.
        use,       // The current connection; the kept one is closed.
        use_kept,  // The kept connection; the current one is closed.
        give_up,
    };
    struct Step {
        Action action = Action::connect;
        bool keep_current = false;
    };
    // Then the caller reports the result of each `connect` by failed() or up(), and a connection
    // that it can't use at `use` or `use_kept` by failed(). start() may be called again at any
    // time.
    Step start();
    Step failed(const Status& why);
    // The listener has not answered for a while: the other addresses are tried, and if all fail,
    // every address is tried again.
    Step timed_out();
    Step up(const na::Incarnation& incarnation);

    // The address to connect to; after `use` and `use_kept` the address in use.
    const na::Address& address() const {
        WEFT_ASSERT(current_ < order_.size());
        return order_[current_];
    }
    // The fastest first.
    const std::vector<na::Address>& addresses() const { return order_; }
    // Why this address is used and not a faster one. Empty: there is only one.
    std::string reason() const;
    // After `give_up`: the status for the waiting calls. `last`: that of the last attempt.
    Status failure_status(const Status& last) const;

  private:
    enum class Stage : std::uint8_t { identify, local, network };
    friend constexpr bool can_move(Stage from, Stage to) {
        return from < to || to == Stage::network;  // Each network is another step.
    }

    bool has_networks() const { return local_count_ != order_.size(); }
    Step next_network();
    Step next_after(std::string what);
    void note(std::string what);

    std::vector<na::Address> order_;  // Of this host, then networks; each fastest first.
    std::size_t local_count_ = 0;
    std::vector<std::size_t> identity_networks_;  // The cheapest to set up first.
    base::State<Stage> stage_{Stage::local};
    std::size_t current_ = 0;
    std::size_t identity_index_ = 0;  // In identity_networks_.
    bool identity_up_ = false;        // Its connection is up.
    bool has_unanswered_ = false;     // One of the failed addresses.
    std::vector<bool> failed_;        // By index in order_, since start().
    na::Incarnation incarnation_;     // Shown in stage `identify`.
    std::string notes_;               // Results of earlier attempts.
};

}  // namespace weft::core
