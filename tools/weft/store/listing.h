#pragma once

#include <string>
#include <vector>

#include "store/session.h"

namespace weft::tool {

// Every object whose name starts with `prefix`, however many pages that takes.
Result<std::vector<storage::Entry>> list_all(Session& session, const std::string& prefix);

Result<storage::Entry> stat_object(Session& session, const std::string& name);

}  // namespace weft::tool
