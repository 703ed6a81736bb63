// Work for all contexts gets the number of the one that it runs on.
// EXPECT on_all() calls its work with the number of the context
#include <weft/runtime.h>

weft::Task<void> visits(weft::Runtime& runtime) {
#ifdef ALLOWED
    const auto work = [](unsigned k) { return k; };
#else
    const auto work = [] { return 1u; };
#endif
    const auto all = co_await runtime.on_all(work);
    (void)all;
}
