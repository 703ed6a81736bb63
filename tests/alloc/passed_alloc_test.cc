// A connection that is passed to another context while there is no memory for that.
#include <atomic>
#include <chrono>

#include <weft/await.h>
#include <weft/runtime.h>

#include "alloc/counting_new.h"
#include "na/door.h"
#include "na/sm/connection.h"
#include "na/tcp/connection.h"
#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

template <class Part>
static std::size_t bytes_of_shared() {
    const std::uint64_t before = allocated_bytes();
    Part part;
    (void)na::share_part(part);
    return allocated_bytes() - before;
}

TEST_CASE("a connection that can't be passed to another context for lack of memory is repeated") {
    if (!allocations_count()) return;
    struct Case {
        const char* scheme;
        std::size_t bytes;
    };
    for (const Case& one : {Case{"tcp", bytes_of_shared<na::tcp::PassedPeer>()},
                            Case{"unix", bytes_of_shared<na::tcp::PassedPeer>()},
                            Case{"sm", bytes_of_shared<na::sm::PassedPeer>()}}) {
        CAPTURE(one.scheme, one.bytes);
        RuntimeOptions by_hand = with_contexts(2);
        by_hand.manual = true;
        Runtime server = Runtime::create(by_hand).value();
        REQUIRE(server.serve(numbered_services(), fresh_uri(one.scheme)).ok());
        Runtime client = Runtime::create(with_contexts(1)).value();
        const Channel channel = client.connect(server.addresses().front()).value().on(1);
        std::atomic<bool> is_over{false};
        Status ended;
        channel.call(number_method, {}, {.timeout = test_timeout},
                     [&](const Status& status, ByteView) {
                         ended = status;
                         is_over = true;
                     });
        {
            const FailingNew failing(FailingNew::none, one.bytes);
            const TimePoint by = std::chrono::steady_clock::now() + test_timeout;
            while (failing.failed() == 0) {
                REQUIRE(std::chrono::steady_clock::now() < by);
                server.context(0).turn();
            }
        }
        CHECK(server.turn_until([&] { return is_over.load(); }, test_timeout));
        INFO(ended.to_string());
        CHECK(ended.ok());
    }
}
