// What one client may hold of what a server has for all.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <weft/call.h>
#include <weft/result.h>

namespace storage {

// Thread-safe: what memory was lent comes back on the thread that lets go of it last.
class Shares {
  public:
    // `of`: what is counted, in the plural, for error texts.
    Shares(std::string of, std::size_t all_max, std::size_t client_max);

    // `count` more for `client`, until the last copy of the result goes, also when this is gone.
    // Errors: RESOURCE_EXHAUSTED when that is too much for one client, or for all.
    weft::Result<std::shared_ptr<void>> take(weft::ClientId client, std::size_t count);

  private:
    struct Books;
    struct Share;

    std::shared_ptr<Books> books_;
};

}  // namespace storage
