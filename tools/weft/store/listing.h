#pragma once

#include <string>
#include <vector>

#include "store/session.h"

namespace weft::tool {

// All objects with names that start with `prefix`, from all pages of the listing.
Result<std::vector<storage::Entry>> list_all(Session& session, const std::string& prefix);

Result<storage::Entry> stat_object(Session& session, const std::string& name);

}  // namespace weft::tool
