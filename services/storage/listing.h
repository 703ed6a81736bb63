// Lists the names below a root in order, a page at a time.
#pragma once

#include <functional>
#include <string>

#include "root.h"

namespace storage {

// Calls `take(name, info)` for every object with a name that starts with `prefix` and follows
// `after`, in order (by parts, each by its bytes), until it returns false. Blocks. Errors:
// INVALID_ARGUMENT (a prefix that no name can have), PERMISSION_DENIED.
weft::Status list(const Root& root, const std::string& prefix, const std::string& after,
                  const std::function<bool(const std::string& name, const ObjectInfo&)>& take);

}  // namespace storage
