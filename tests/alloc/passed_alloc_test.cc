// A connection that is passed to another context while there is no memory.
#include <atomic>
#include <optional>

#include <weft/await.h>
#include <weft/runtime.h>

#include "alloc/counting_new.h"
#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

namespace {

// Context 0 of a server turns without memory for one allocation, until it has passed a connection
// of `client` on, or refused it.
bool fails_in_acceptor(std::uint64_t behind, const ContextRef& acceptor, const ContextRef& other) {
    const TimePoint by = std::chrono::steady_clock::now() + test_timeout;
    const FailingNew failing(behind);
    // Work that is posted there keeps it from sleeping.
    while (failing.failed() == 0 && other.arm()) {
        REQUIRE(std::chrono::steady_clock::now() < by);
        acceptor.turn();
    }
    return failing.failed() != 0;
}

}  // namespace

TEST_CASE("a connection is passed to another context, or refused, whichever allocation fails") {
    if (!allocations_count()) return;
    for (const char* scheme : {"tcp", "unix", "sm"}) {
        CAPTURE(scheme);
        RuntimeOptions by_hand = with_contexts(2);
        by_hand.manual = true;
        Runtime server = Runtime::create(by_hand).value();
        REQUIRE(server.serve(numbered_services(), fresh_uri(scheme)).ok());
        const ContextRef acceptor = server.context(0), other = server.context(1);
        std::uint64_t failed = 0;
        for (bool has_failed = true; has_failed; failed += has_failed) {
            REQUIRE(failed < 1000);
            Runtime client = Runtime::create(with_contexts(1)).value();
            const Channel channel = client.connect(server.addresses().front()).value().on(1);
            std::atomic<bool> is_over{false};
            Status ended;
            for (int i = 0; i < 8; ++i) (void)server.turn();  // Nothing else is left to do.
            channel.call(number_method, {}, {.timeout = test_timeout},
                         [&](const Status& status, ByteView) {
                             ended = status;
                             is_over = true;
                         });
            has_failed = fails_in_acceptor(failed, acceptor, other);
            CHECK(server.turn_until([&] { return is_over.load(); }, test_timeout));
            INFO(ended.to_string());
            CHECK(ended.ok());
        }
        CHECK(failed >= 2);
    }
}
