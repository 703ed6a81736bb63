// Work that is offloaded and not awaited would not run.
// EXPECT nodiscard
#include <weft/offload.h>

#pragma GCC diagnostic error "-Wunused-result"

weft::Task<void> offloads() {
    const auto work = [] {};
#ifdef ALLOWED
    co_await weft::offload(work);
#else
    weft::offload(work);
#endif
    co_return;
}
