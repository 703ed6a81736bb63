// `weft ls` and `get NAME/` against a server that never ends its listing.
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "store/listing.h"
#include "support/catch.h"
#include "support/test_timeout.h"

using namespace weft;

namespace {

// Always reports that there is more.
struct Endless final : storage::StoreService {
    std::atomic<std::uint64_t> next{0};
    std::atomic<bool> rises{false};  // Set while requests of the last listing are handled.

    Task<Status> List(Call&, const storage::ListRequest&, storage::ListReply& out) override {
        for (int i = 0; i < 2000; ++i) {
            char name[32];
            std::snprintf(name, sizeof name, "%020llu",
                          static_cast<unsigned long long>(rises ? next++ : i));
            out.add_entries()->set_name(name);
        }
        out.set_more(true);
        co_return Status();
    }
};

}  // namespace

TEST_CASE("a listing ends when its server repeats entries, or sends new ones, for ever") {
    Endless service;
    Runtime server = Runtime::create().value();
    const std::string uri = "sm://endless-" + std::to_string(::getpid());
    REQUIRE(server.serve(service, uri).ok());
    Result<tool::Session> session = tool::Session::open({uri});
    REQUIRE(session.ok());
    CHECK(tool::list_all(*session, "").status().code() == Code::data_loss);
    service.rises = true;
    CHECK(tool::list_all(*session, "").status().code() == Code::resource_exhausted);
    CHECK(service.next < 1'100'000);
}
