#include "fresh_directories.h"

#include <sys/stat.h>

#include <cerrno>

namespace storage {

int FreshDirectories::make(int above, const std::string& leaf, const std::string& path) {
    std::uint64_t made = 0;
    {
        const std::lock_guard lock(mutex_);
        // The entry first: no directory is made that is not known to be fresh.
        const auto [at, is_new] = fresh_.try_emplace(path);
        const int error = ::mkdirat(above, leaf.c_str(), 0777) == 0 ? 0 : errno;
        if (error == 0) at->second = ++made_;
        made = at->second;
        const bool is_fresh = error == 0 || (error == EEXIST && !is_new);
        if (is_new && !is_fresh) fresh_.erase(at);
        if (!is_fresh) return error == EEXIST ? 0 : error;
    }
    if (sync_(above) != 0) return errno;  // It stays fresh: the next put tries again.
    const std::lock_guard lock(mutex_);
    // Not one that was removed and made again meanwhile.
    const auto at = fresh_.find(path);
    if (at != fresh_.end() && at->second == made) fresh_.erase(at);
    return 0;
}

}  // namespace storage
