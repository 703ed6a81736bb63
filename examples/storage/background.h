// Work of handlers on other threads, where a handler goes on whatever comes of it.
#pragma once

#include <string>
#include <system_error>
#include <type_traits>

#include <weft/offload.h>
#include <weft/result.h>

namespace storage {

// What `work` returns (a Status or a Result), or RESOURCE_EXHAUSTED where the system gives no
// thread for it. Lifetime: `work` outlives the task.
template <class Work>
weft::Task<std::invoke_result_t<Work&>> in_background(Work& work) {
    std::string text;
    try {
        co_return co_await weft::offload(work);
    } catch (const std::system_error& error) {
        text = error.what();
    }
    co_return weft::rejected(weft::Code::resource_exhausted, text);
}

}  // namespace storage
