// Decides which of the addresses named by peers this program connects to: addresses on the
// transports, and in the places, of its own addresses. So a peer can't make the program use another
// transport, or reach a service that only this host can reach.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "na/address.h"

namespace weft::core {

class ConnectPolicy {
  public:
    // An address that the program listens on, or has in a view of its own.
    void add(const na::Address& own);
    void add(std::string_view uri);
    // Whether `named` has the transport of an own address. On unix it must also have the directory
    // of one. A loopback address requires an own address on loopback; a listener on all addresses
    // (0.0.0.0) is none.
    bool allows(const na::Address& named) const;
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
