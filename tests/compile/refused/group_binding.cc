// The result of a collective is one object, too.
// EXPECT decompose
#include "merge.weft.h"

weft::Task<bool> ask(merge::v1::MergingGroupClient members) {
#ifdef ALLOWED
    const auto merged = co_await members.Ordered({});
    co_return merged.status().ok();
#else
    const auto [status, reply] = co_await members.Ordered({});
    co_return status.ok();
#endif
}
