// The referenced object belongs to the thread of another context.
// EXPECT on_all() returns no reference into another context
#include <vector>

#include <weft/runtime.h>

weft::Task<int> first(weft::Runtime& runtime, std::vector<int>& shards) {
#ifdef ALLOWED
    const auto work = [&](unsigned k) { return shards[k]; };
#else
    const auto work = [&](unsigned k) -> int& { return shards[k]; };
#endif
    const auto all = co_await runtime.on_all(work);
    co_return all.front();
}
