// A coroutine does not run on the thread of offloaded work.
// EXPECT offload() awaits nothing on its thread
#include <weft/offload.h>

weft::Task<int> one() { co_return 1; }

weft::Task<int> other() {
#ifdef ALLOWED
    co_return co_await one();
#else
    const auto work = [] { return one(); };
    co_return co_await (co_await weft::offload(work));
#endif
}
