// Methods by the hash of their name: open addressing, at most a quarter full, so that a lookup is
// one multiply-free probe in the common case.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <weft/call.h>
#include <weft/result.h>
#include <weft/service.h>

#include "base/assert.h"
#include "base/histogram.h"

namespace weft::rpc {

// Alone in its lines: another context may have the memory beside it.
struct alignas(64) Method {
    Method(std::string_view full_name, RawHandler with, MethodTraits and_traits);

    std::uint64_t hash;
    std::string name;
    RawHandler handler;
    MethodTraits traits;
    bool drain_exempt = false;  // Found also after close().

    base::Latencies latencies;  // Nanoseconds from the start of the handler to its reply.
};

class MethodTable {
  public:
    // Errors: ALREADY_EXISTS, also when two names share a hash.
    Status add(std::string_view full_name, RawHandler handler, MethodTraits traits,
               bool drain_exempt = false);
    // Adds all of the methods or none. find() returns none of them before publish(), which can't
    // fail; drop_staged() removes them instead. Errors: as add(). Requires: no methods are staged.
    Status stage(std::vector<std::unique_ptr<Method>> methods);
    void publish() noexcept;
    void drop_staged();
    // From here on find() returns drain-exempt methods only.
    void close();
    // From here on find() returns no method.
    void close_all();
    // Destroys the handlers, once no method is called any more; the names stay.
    void drop_handlers();

    template <class Visit>
    void for_each(Visit&& visit) const {
        for (const auto& method : methods_) visit(*method);
    }
    Method* find(std::uint64_t hash) const {
        for (std::size_t i = hash & mask_;; i = (i + 1) & mask_) {
            Method* method = slots_[i];
            if (!method || method->hash == hash) return method;
        }
    }

    // A handler starts. last_run(): the last one; nullptr: none has started. Thread: any.
    void on_run(const Method& method) {
        WEFT_DCHECK(method.handler);
        last_run_.store(&method, std::memory_order_release);
    }
    const Method* last_run() const { return last_run_.load(std::memory_order_acquire); }

  private:
    using Methods = std::span<const std::unique_ptr<Method>>;
    Status why_not_added(const Method& method, Methods beside) const;
    void reserve(std::size_t more);
    void rebuild();

    std::vector<std::unique_ptr<Method>> methods_;  // Calls in handlers point to them.
    std::vector<std::unique_ptr<Method>> staged_;   // The others have room for them.
    bool is_open_ = true;                           // Before close().
    std::vector<Method*> slots_ = {nullptr};
    std::size_t mask_ = 0;
    std::atomic<const Method*> last_run_{nullptr};
};

}  // namespace weft::rpc
