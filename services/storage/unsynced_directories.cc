#include "unsynced_directories.h"

#include <sys/stat.h>

#include <cerrno>

namespace storage {

int UnsyncedDirectories::make(int above, const std::string& leaf, const std::string& path) {
    std::uint64_t made = 0;
    {
        const std::lock_guard lock(mutex_);
        // The entry is made first: a new directory without an entry would count as durable.
        const auto [at, is_new] = unsynced_.try_emplace(path);
        const int error = ::mkdirat(above, leaf.c_str(), 0777) == 0 ? 0 : errno;
        if (error == 0) at->second = ++made_;
        made = at->second;
        const bool is_unsynced = error == 0 || (error == EEXIST && !is_new);
        if (is_new && !is_unsynced) unsynced_.erase(at);
        if (!is_unsynced) return error == EEXIST ? 0 : error;
    }
    if (sync_(above) != 0) return errno;  // Stays in the table: the next put tries again.
    const std::lock_guard lock(mutex_);
    // Keeps the entry of a directory that was removed and made again meanwhile.
    const auto at = unsynced_.find(path);
    if (at != unsynced_.end() && at->second == made) unsynced_.erase(at);
    return 0;
}

}  // namespace storage
