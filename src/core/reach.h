// Which of the addresses that peers name this program connects to: those that lie where addresses
// of its own do. So a peer's word makes it use no transport that it does not use anyway, and leads
// to no service of this host that only this host reaches.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "na/address.h"

namespace weft::core {

class Reach {
  public:
    // One that the program listens on, or has in a view of its own.
    void add(const na::Address& own);
    void add(std::string_view uri);
    // The same transport; and on unix the directory of one of them, on networks this host's
    // loopback only where one of them is there: one that listens everywhere (0.0.0.0) is not.
    bool covers(const na::Address& named) const;
    // "tcp, ofi+tcp"; "none".
    std::string transports() const;

  private:
    struct Transport {
        std::string scheme;
        bool has_loopback = false;
        std::set<std::string> directories;  // unix
    };
    const Transport* find(const std::string& scheme) const;

    std::vector<Transport> transports_;
};

}  // namespace weft::core
