// What a client takes of a server that lists its objects, page by page. The server is not trusted
// to come to an end.
#pragma once

#include <string>
#include <vector>

#include <weft/status.h>
#include <weft/time.h>

#include "storage.weft.h"

namespace storage {

class Pages {
  public:
    Pages(std::string prefix, weft::TimePoint now) : prefix_(std::move(prefix)), begun_(now) {}

    // Errors: DATA_LOSS: a name that is none, or out of order; RESOURCE_EXHAUSTED: more than a
    // client takes (bounds.h); DEADLINE_EXCEEDED.
    weft::Status add(ListReply page, weft::TimePoint now);
    // Behind which the next page goes on.
    const std::string& last() const { return entries_.back().name(); }
    std::vector<Entry> take() { return std::move(entries_); }

  private:
    weft::Status judge(const Entry& entry) const;

    const std::string prefix_;
    const weft::TimePoint begun_;
    std::vector<Entry> entries_;
    std::size_t name_bytes_ = 0;
};

}  // namespace storage
