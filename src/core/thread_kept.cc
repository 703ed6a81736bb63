#include <weft/thread_kept.h>

#include <pthread.h>

namespace weft::detail {
namespace {

struct ThisThread {
    ThreadKept* first = nullptr;
    bool has_ended = false;
};
constinit thread_local ThisThread here;

void release_all(void*) noexcept {
    here.has_ended = true;
    for (ThreadKept* kept = here.first; kept; kept = kept->next) kept->release(*kept);
}

// The destructors of keys run behind those of thread_local objects.
struct Key {
    pthread_key_t key{};
    const bool is_made = ::pthread_key_create(&key, [](void* of) { release_all(of); }) == 0;
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
