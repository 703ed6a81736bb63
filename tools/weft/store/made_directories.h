// Directories that a download makes, and takes away again where nothing came to lie in them.
#pragma once

#include <filesystem>
#include <mutex>
#include <vector>

#include <weft/status.h>

namespace weft::tool {

class MadeDirectories {
  public:
    // The directory and those above it that are missing. Thread: any. Errors: as errno_status().
    Status make(const std::filesystem::path& directory);
    // Those that are empty.
    void remove_empty();

  private:
    std::mutex mutex_;
    std::vector<std::filesystem::path> made_;  // Each behind those above it.
};

}  // namespace weft::tool
