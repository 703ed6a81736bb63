// Which of a server's addresses is used: decided, without I/O, from what comes of trying them.
//
// An address of this host (sm, unix) is only a name: another server may bear it. It is used when
// the process behind it has the incarnation that an address of the network has shown before (the
// witness), or when the server has no address of the network at all. Otherwise the fastest network
// counts, then the next fastest. docs/adr/0005-best-path.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <weft/status.h>

#include "na/provider.h"

namespace weft::core {

class Path {
  public:
    // Among equally fast ones the first counts. Requires: at least one.
    explicit Path(std::vector<na::Address> addresses);

    enum class Action : std::uint8_t {
        connect,   // To address(); with `hold` the connection that is up is kept meanwhile.
        use,       // The connection that is up. One that is held has done its work.
        use_held,  // The one that is held. One that is up has done its work.
        give_up,
    };
    struct Step {
        Action action = Action::connect;
        bool hold = false;
    };
    // From here on failed() or up() tells what came of each `connect`, and failed() of a `use_held`
    // that finds it lost. May start again at any time.
    Step start();
    Step failed(const Status& why);
    // Of a listener that has not answered for a while: the other addresses are tried, and when none
    // of them is of use all are tried again.
    Step unanswered();
    Step up(const na::Incarnation& who);

    // To connect to; after `use` and `use_held`: that is used.
    const na::Address& address() const { return order_[at_]; }
    // In the order of speed.
    const std::vector<na::Address>& addresses() const { return order_; }
    // Why this address and not a faster one. Empty: there was no choice.
    std::string reason() const;
    // After `give_up`: what is told to those who wait. `last`: what the last attempt came to.
    Status verdict(const Status& last) const;

  private:
    enum class Stage : std::uint8_t { witness, local, network };

    bool has_networks() const { return locals_ != order_.size(); }
    Step next_network();
    Step next_after(std::string what);
    void note(std::string what);

    std::vector<na::Address> order_;  // Those of this host, then networks; each fastest first.
    std::size_t locals_ = 0;
    std::vector<std::size_t> witnesses_;  // Networks, the cheapest first.
    Stage stage_ = Stage::local;
    std::size_t at_ = 0;
    std::size_t witness_ = 0;   // In witnesses_.
    bool held_ = false;         // The witness is up.
    bool may_answer_ = false;   // One of those that failed.
    std::vector<bool> failed_;  // By place in order_, since the start.
    na::Incarnation who_;       // It is.
    std::string notes_;         // What came of those before.
};

}  // namespace weft::core
