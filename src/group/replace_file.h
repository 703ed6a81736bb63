// A file that is changed as one step, by one at a time.
#pragma once

#include <string>
#include <string_view>

#include <weft/result.h>

#include "base/unique_fd.h"

namespace weft::group {

// The file itself, when `path` is a link. Errors: as file_error().
Result<std::string> resolve_link(const std::string& path);

// Waits until nobody else holds the lock on this file, in this process or another; it is held while
// the descriptor is open, and by nobody who died. Errors: as file_error().
Result<base::UniqueFd> lock_file(const std::string& path);

// A reader of the file finds all of what was there or all of `text`. Keeps its mode, its
// group and its access list, and its owner where this process may. Requires: lock_file(path).
// Errors: as file_error(); the file is as it was then.
Status replace_file(const std::string& path, std::string_view text);

}  // namespace weft::group
