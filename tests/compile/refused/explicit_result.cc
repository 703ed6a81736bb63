// A result is returned as by a function: explicit conversions are not applied.
// EXPECT return_value
#include <weft/result.h>
#include <weft/task.h>

weft::Task<weft::Result<bool>> answer() { co_return false; }
#ifdef ALLOWED
weft::Task<bool> wraps() { co_return (co_await answer()).value(); }
#else
weft::Task<bool> wraps() { co_return co_await answer(); }
#endif
