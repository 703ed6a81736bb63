// A file that is replaced atomically, by one process at a time.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <weft/result.h>

#include "base/unique_fd.h"

namespace weft::group {

// The file itself, when `path` is a link. Errors: as file_error().
Result<std::string> resolve_link(const std::string& path);

// An exclusive lock among threads and processes, which ends with its process. Released explicitly,
// because a child forked meanwhile may keep a copy of the descriptor.
class FileLock {
  public:
    explicit FileLock(base::UniqueFd held) : held_(std::move(held)) {}
    FileLock(FileLock&&) = default;
    ~FileLock();

  private:
    base::UniqueFd held_;
    const base::OwnerProcess process_;
};

// Waits until the lock on this file is free. Errors: as file_error().
Result<FileLock> lock_file(const std::string& path);

// A reader of the file finds either all of the old text or all of `text`. Keeps the mode, the group
// and the access list, and the owner where this process may. Requires: lock_file(path). Errors: as
// file_error(); the file is then unchanged.
Status replace_file(const std::string& path, std::string_view text);

}  // namespace weft::group
