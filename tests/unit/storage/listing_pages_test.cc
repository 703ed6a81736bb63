// The pages of a listing that a client accepts.
#include "storage/listing_pages.h"

#include "storage/bounds.h"
#include "storage/name.h"
#include "support/catch.h"

using namespace weft;

namespace storage_pages {

storage::ListReply page(const std::vector<std::string>& names, bool more = true) {
    storage::ListReply reply;
    for (const std::string& name : names) reply.add_entries()->set_name(name);
    reply.set_more(more);
    return reply;
}

TEST_CASE("listing: names are ordered part by part") {
    const std::vector<std::string> rising{"a/b", "a/b!", "a/c/d", "a!", "a-b", "ab", "b"};
    for (std::size_t i = 0; i < rising.size(); ++i) {
        for (std::size_t j = 0; j < rising.size(); ++j) {
            INFO(rising[i] << " " << rising[j]);
            CHECK(storage::is_before(rising[i], rising[j]) == (i < j));
        }
    }
}

TEST_CASE("listing: a page fails when its names do not rise or are not below the prefix") {
    const TimePoint now{};
    const auto code_of = [&](const std::vector<std::string>& second) {
        storage::ListingPages pages("d/", now);
        REQUIRE(pages.add(page({"d/a", "d/b"}), now).ok());
        CHECK(pages.last() == "d/b");
        return pages.add(page(second), now).code();
    };
    CHECK(code_of({"d/c"}) == Code::ok);
    CHECK(code_of({"d/b"}) == Code::data_loss);  // The same page for ever.
    CHECK(code_of({"d/a"}) == Code::data_loss);
    CHECK(code_of({"d/c", "d/c"}) == Code::data_loss);
    CHECK(code_of({"e"}) == Code::data_loss);
    CHECK(code_of({"d/../e"}) == Code::data_loss);
    CHECK(code_of({""}) == Code::data_loss);
    CHECK(code_of({}) == Code::data_loss);
}

TEST_CASE("listing: an endless listing fails at the client's limit of names or of time") {
    const TimePoint now{};
    storage::ListingPages pages("", now);
    Status status;
    std::size_t taken = 0;
    while (status.ok()) {
        std::vector<std::string> names;
        for (int i = 0; i < 4096; ++i) {
            char name[16];
            std::snprintf(name, sizeof name, "%012zu", taken++);
            names.emplace_back(name);
        }
        status = pages.add(page(names), now);
    }
    CHECK(status.code() == Code::resource_exhausted);
    CHECK(status.text().find("list a longer prefix") != std::string::npos);
    CHECK(pages.take().size() == storage::listed_max);

    storage::ListingPages slow("", now);
    REQUIRE(slow.add(page({"a"}), now + storage::listing_time_max - 1ns).ok());
    CHECK(slow.add(page({"b"}), now + storage::listing_time_max).code() == Code::deadline_exceeded);
}

}  // namespace storage_pages
