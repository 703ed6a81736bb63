// The threads for offload() of a runtime with several contexts.
#include <weft/offload.h>

#include <condition_variable>
#include <mutex>

#include <weft/runtime.h>

#include "support/catch.h"
#include "support/contexts.h"
#include "support/test_timeout.h"

namespace offload_contexts_test {
namespace {

using namespace weft;
using namespace weft::test;

// Where threads wait for each other.
struct OffloadMeeting {
    const unsigned expected;
    std::mutex mutex;
    std::condition_variable changed;
    unsigned arrived = 0;

    // False: the others have not come.
    bool join() {
        std::unique_lock lock(mutex);
        ++arrived;
        changed.notify_all();
        return changed.wait_for(lock, test_timeout, [this] { return arrived == expected; });
    }
};

}  // namespace

TEST_CASE("offload: work of all contexts may block threads at the same time") {
    constexpr unsigned contexts = 5;
    Runtime runtime = Runtime::create(with_contexts(contexts)).value();
    OffloadMeeting meeting{contexts, {}, {}};
    const auto join = [&] { return meeting.join(); };
    const auto meet = [&](unsigned) -> Task<bool> { co_return co_await offload(join); };
    for (const bool has_met : runtime.block_on(runtime.on_all(meet))) CHECK(has_met);
}

}  // namespace offload_contexts_test
