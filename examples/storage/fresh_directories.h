// Directories that were made and may not be durable yet. An object's commit makes only its own
// directory durable; each put makes those above it durable before, also those that another put has
// just made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace storage {

class FreshDirectories {
  public:
    // `sync` makes a directory durable; returns -1 with errno when it can't.
    using Sync = std::function<int(int directory)>;
    explicit FreshDirectories(Sync sync) : sync_(std::move(sync)) {}

    // Makes `leaf` in the directory `above` unless it is there, and does not return before it is
    // durable. `path` names it among all. Returns 0 or an errno. Thread: any. Blocks.
    int make(int above, const std::string& leaf, const std::string& path);
    // How many are not durable yet, as far as is known.
    std::size_t fresh() const {
        const std::lock_guard lock(mutex_);
        return fresh_.size();
    }

  private:
    const Sync sync_;
    mutable std::mutex mutex_;
    std::map<std::string, std::uint64_t> fresh_;  // By path: the how many of those made it is.
    std::uint64_t made_ = 0;
};

}  // namespace storage
