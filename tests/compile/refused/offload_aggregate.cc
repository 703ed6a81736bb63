// g++ 12 destroys the temporary aggregate's string twice.
// EXPECT AwaitSafe
#include <string>

#include <weft/offload.h>

struct Length {
    std::string text;
    std::size_t operator()() const { return text.size(); }
};

weft::Task<std::size_t> length(std::string text) {
#ifdef ALLOWED
    const Length work{text};
    co_return co_await weft::offload(work);
#else
    co_return co_await weft::offload(Length{text});
#endif
}
