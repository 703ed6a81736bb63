// Directories that a download creates, and removes again if they stay empty.
#pragma once

#include <filesystem>
#include <mutex>
#include <vector>

#include <weft/status.h>

namespace weft::tool {

class CreatedDirectories {
  public:
    // Creates the directory and its missing parents. Thread: any. Errors: as errno_status().
    Status make(const std::filesystem::path& directory);
    // Removes the created directories that are empty.
    void remove_empty();

  private:
    std::mutex mutex_;
    std::vector<std::filesystem::path> made_;  // Parents before children.
};

}  // namespace weft::tool
