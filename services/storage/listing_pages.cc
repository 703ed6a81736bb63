#include "listing_pages.h"

#include "bounds.h"
#include "name.h"

namespace storage {

using weft::Code;
using weft::Status;

Status ListingPages::validate(const Entry& entry) const {
    if (!validate_name(entry.name()).ok() || !entry.name().starts_with(prefix_)) {
        return weft::fail(Code::data_loss,
                          "the server lists " + quote(entry.name()) + " below " + quote(prefix_));
    }
    if (!entries_.empty() && !is_before(entries_.back().name(), entry.name())) {
        return weft::fail(Code::data_loss, "the server lists " + quote(entry.name()) + " after " +
                                               quote(entries_.back().name()) + ": names must rise");
    }
    return {};
}

Status ListingPages::add(ListReply page, weft::TimePoint now) {
    if (page.more() && page.entries().empty()) {
        return weft::fail(Code::data_loss, "the server reports more objects and lists none");
    }
    for (Entry& entry : *page.mutable_entries()) {
        if (Status status = validate(entry); !status.ok()) return status;
        name_bytes_ += entry.name().size();
        if (entries_.size() == listed_max || name_bytes_ > listed_name_bytes_max) {
            return weft::fail(Code::resource_exhausted,
                              "the server lists more than " + std::to_string(listed_max) +
                                  " objects, or names of more than " +
                                  std::to_string(listed_name_bytes_max >> 20) + " MiB, below " +
                                  quote(prefix_) + "; list a longer prefix");
        }
        entries_.push_back(std::move(entry));
    }
    if (now - begun_ < listing_time_max) return {};
    return weft::fail(Code::deadline_exceeded,
                      "the server lists for more than " +
                          std::to_string(listing_time_max / std::chrono::minutes(1)) + " minutes");
}

}  // namespace storage
