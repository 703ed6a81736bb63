#include <weft/thread_cache.h>

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/assert.h"

namespace weft::detail {
namespace {

struct ThisThread {
    ThreadCache* first = nullptr;
    bool has_ended = false;
};
constinit thread_local ThisThread here;

void release_all() noexcept {
    here.has_ended = true;
    for (ThreadCache* cache = std::exchange(here.first, nullptr); cache; cache = cache->next) {
        cache->release(*cache);
    }
}

// The key; its destructor runs after those of thread_local objects. Not a static local variable: it
// would be locked during its initialization, and in a child forked then for ever.
std::optional<pthread_key_t> end_of_thread() {
    static constinit std::atomic<std::uint64_t> stored_key{0};  // One more than the key.
    std::uint64_t known = stored_key.load(std::memory_order_acquire);
    if (known != 0) return static_cast<pthread_key_t>(known - 1);
    pthread_key_t key{};
    if (::pthread_key_create(&key, [](void*) { release_all(); }) != 0) return std::nullopt;
    if (stored_key.compare_exchange_strong(known, key + std::uint64_t{1})) return key;
    ::pthread_key_delete(key);  // Another thread was faster.
    return static_cast<pthread_key_t>(known - 1);
}

// The destructor of the key does not run on a thread that calls exit().
struct Exit {
    ~Exit() { release_all(); }
};
const Exit at_exit;

}  // namespace

bool register_thread_cache(ThreadCache& cache) noexcept {
    if (here.has_ended) return false;
    WEFT_ASSERT(!cache.is_registered && cache.release);
    const auto end = end_of_thread();
    if (!end || (!here.first && ::pthread_setspecific(*end, &here) != 0)) return false;
    cache.next = here.first;
    cache.is_registered = true;
    here.first = &cache;
    return true;
}

}  // namespace weft::detail
