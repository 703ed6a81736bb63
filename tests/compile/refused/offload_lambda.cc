// g++ 12 destroys the temporary lambda's string twice.
// EXPECT AwaitSafe
#include <string>

#include <weft/offload.h>

weft::Task<std::size_t> length(std::string text) {
#ifdef ALLOWED
    const auto work = [text] { return text.size(); };
    co_return co_await weft::offload(work);
#else
    co_return co_await weft::offload([text] { return text.size(); });
#endif
}
