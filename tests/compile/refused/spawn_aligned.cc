// The callable is stored in a coroutine's frame, which is aligned as operator new aligns.
// EXPECT a coroutine's frame can't align what this callable captures
#include <memory>

#include <weft/runtime.h>

struct alignas(64) Line {
    char bytes[64] = {};
};

void start(weft::Runtime& runtime) {
#ifdef ALLOWED
    auto line = std::make_unique<Line>();
#else
    const Line line;
#endif
    runtime.spawn([line = std::move(line)]() -> weft::Task<void> {
        (void)line;
        co_return;
    });
}
