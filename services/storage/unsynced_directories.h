// Directories that were made and may not be durable yet. An object's commit makes only its own
// directory durable. Before that, each put makes the directories above it durable, also those that
// another put has just made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace storage {

class UnsyncedDirectories {
  public:
    // `sync` makes a directory durable; returns -1 with errno when it can't.
    using Sync = std::function<int(int directory)>;
    explicit UnsyncedDirectories(Sync sync) : sync_(std::move(sync)) {}

    // Makes `leaf` in the directory `above` unless it exists, and returns only when it is durable.
    // `path` identifies it in the table. Returns 0 or an errno. Thread: any. Blocks.
    int make(int above, const std::string& leaf, const std::string& path);
    // Number of directories that may not be durable yet.
    std::size_t unsynced() const {
        const std::lock_guard lock(mutex_);
        return unsynced_.size();
    }

  private:
    const Sync sync_;
    mutable std::mutex mutex_;
    std::map<std::string, std::uint64_t> unsynced_;  // By path: the serial number of its creation.
    std::uint64_t made_ = 0;
};

}  // namespace storage
