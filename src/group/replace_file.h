// A file that is changed as one step, by one at a time.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <weft/result.h>

#include "base/unique_fd.h"

namespace weft::group {

// The file itself, when `path` is a link. Errors: as file_error().
Result<std::string> resolve_link(const std::string& path);

// A lock that no other thread or process holds meanwhile, and that ends with its process. Given
// back as such: a child forked meanwhile may keep a copy of the descriptor.
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

// A reader of the file finds all of what was there or all of `text`. Keeps its mode, its
// group and its access list, and its owner where this process may. Requires: lock_file(path).
// Errors: as file_error(); the file is as it was then.
Status replace_file(const std::string& path, std::string_view text);

}  // namespace weft::group
