#include <weft/thread_kept.h>

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace weft::detail {
namespace {

struct ThisThread {
    ThreadKept* first = nullptr;
    bool has_ended = false;
};
constinit thread_local ThisThread here;

void release_all() noexcept {
    here.has_ended = true;
    for (ThreadKept* kept = std::exchange(here.first, nullptr); kept; kept = kept->next) {
        kept->release(*kept);
    }
}

// The key, whose destructor runs behind those of thread_local objects. Not a static variable of a
// function, which would be locked while one thread makes it, in a child forked then for ever.
std::optional<pthread_key_t> end_of_thread() {
    static constinit std::atomic<std::uint64_t> made{0};  // One more than the key.
    std::uint64_t known = made.load(std::memory_order_acquire);
    if (known != 0) return static_cast<pthread_key_t>(known - 1);
    pthread_key_t key{};
    if (::pthread_key_create(&key, [](void*) { release_all(); }) != 0) return std::nullopt;
    if (made.compare_exchange_strong(known, key + std::uint64_t{1})) return key;
    ::pthread_key_delete(key);  // Another thread was faster.
    return static_cast<pthread_key_t>(known - 1);
}

// The key's does not run on a thread that calls exit().
struct Exit {
    ~Exit() { release_all(); }
};
const Exit at_exit;

}  // namespace

bool keep_for_thread(ThreadKept& kept) noexcept {
    if (here.has_ended) return false;
    const auto end = end_of_thread();
    if (!end || (!here.first && ::pthread_setspecific(*end, &here) != 0)) return false;
    kept.next = here.first;
    kept.is_known = true;
    here.first = &kept;
    return true;
}

}  // namespace weft::detail
