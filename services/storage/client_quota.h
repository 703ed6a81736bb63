// One client's share of a resource that a server has for all clients.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <weft/call.h>
#include <weft/result.h>

namespace storage {

// Thread-safe: leased memory is returned on the thread that releases its last reference.
class ClientQuota {
  public:
    // `of`: the name of the counted resource, in the plural, for error texts.
    ClientQuota(std::string of, std::size_t all_max, std::size_t client_max);

    // Takes `count` more for `client`, until the last copy of the result is destroyed; that may be
    // after the quota. Errors: RESOURCE_EXHAUSTED when the limit of one client, or of all clients,
    // is exceeded.
    weft::Result<std::shared_ptr<void>> take(weft::ClientId client, std::size_t count);

  private:
    struct Usage;
    struct Reservation;

    std::shared_ptr<Usage> usage_;
};

}  // namespace storage
