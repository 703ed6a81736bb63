#include <weft/thread_kept.h>

#include <pthread.h>

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

// The destructors of keys run behind those of thread_local objects; not on a thread that calls
// exit().
struct Key {
    ~Key() { release_all(); }
    pthread_key_t key{};
    const bool is_made = ::pthread_key_create(&key, [](void*) { release_all(); }) == 0;
};

}  // namespace

bool keep_for_thread(ThreadKept& kept) noexcept {
    static const Key end;
    if (here.has_ended || !end.is_made) return false;
    if (!here.first && ::pthread_setspecific(end.key, &here) != 0) return false;
    kept.next = here.first;
    kept.is_known = true;
    here.first = &kept;
    return true;
}

}  // namespace weft::detail
