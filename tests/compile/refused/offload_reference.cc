// The referenced object may be destroyed when the coroutine resumes.
// EXPECT offload() returns no reference
#include <weft/offload.h>

weft::Task<int> first(int* numbers) {
#ifdef ALLOWED
    const auto work = [numbers] { return numbers; };
    co_return *co_await weft::offload(work);
#else
    const auto work = [numbers]() -> int& { return *numbers; };
    co_return co_await weft::offload(work);
#endif
}
