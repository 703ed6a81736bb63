// Runs a handler's work on other threads; the handler resumes whatever the result is.
#pragma once

#include <string>
#include <system_error>
#include <type_traits>

#include <weft/offload.h>
#include <weft/result.h>

namespace storage {

// The result of `work` (a Status or a Result), or RESOURCE_EXHAUSTED when the system can't create a
// thread. Lifetime: `work` outlives the task.
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
