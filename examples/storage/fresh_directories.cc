#include "fresh_directories.h"

#include <sys/stat.h>

#include <cerrno>

namespace storage {

int FreshDirectories::make(int above, const std::string& leaf, const std::string& path) {
    {
        const std::lock_guard lock(mutex_);
        const bool is_made = ::mkdirat(above, leaf.c_str(), 0777) == 0;
        if (!is_made && errno != EEXIST) return errno;
        if (!is_made && !fresh_.contains(path)) return 0;
        fresh_.insert(path);
    }
    const int error = sync_(above) == 0 ? 0 : errno;
    const std::lock_guard lock(mutex_);
    // Where that failed it stays fresh: the next put tries again.
    if (error == 0) fresh_.erase(fresh_.find(path));
    return error;
}

}  // namespace storage
