// Checks options of collective methods and of merged replies; a problem names its place.
#pragma once

#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>

namespace weft::plugin {

// Checks the group options of the file's methods, the merge rules of its fields, and the merge
// rules of all fields in replies of its merged methods. Appends to `problems`.
void check_group_rules(const google::protobuf::FileDescriptor& file,
                       std::vector<std::string>& problems);

}  // namespace weft::plugin
