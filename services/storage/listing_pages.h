// The pages of a listing that a client receives from a server. The server is not trusted to end the
// listing.
#pragma once

#include <string>
#include <vector>

#include <weft/status.h>
#include <weft/time.h>

#include "storage.weft.h"

namespace storage {

class ListingPages {
  public:
    ListingPages(std::string prefix, weft::TimePoint now)
        : prefix_(std::move(prefix)), begun_(now) {}

    // Errors: DATA_LOSS: an invalid name, or one out of order; RESOURCE_EXHAUSTED: more than a
    // client accepts (bounds.h); DEADLINE_EXCEEDED.
    weft::Status add(ListReply page, weft::TimePoint now);
    // The next page starts after this name.
    const std::string& last() const { return entries_.back().name(); }
    std::vector<Entry> take() { return std::move(entries_); }

  private:
    weft::Status validate(const Entry& entry) const;

    const std::string prefix_;
    const weft::TimePoint begun_;
    std::vector<Entry> entries_;
    std::size_t name_bytes_ = 0;
};

}  // namespace storage
