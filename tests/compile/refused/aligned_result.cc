// A coroutine's frame is aligned as operator new aligns.
// EXPECT a coroutine's frame can't align this result
#include <memory>

#include <weft/task.h>

struct alignas(64) Line {
    char bytes[64] = {};
};

#ifdef ALLOWED
weft::Task<std::unique_ptr<Line>> line() { co_return std::make_unique<Line>(); }
#else
weft::Task<Line> line() { co_return Line(); }
#endif
