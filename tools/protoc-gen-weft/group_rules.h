// What of a group's calls and of merged replies can't be, said with the place in the .proto.
#pragma once

#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>

namespace weft::plugin {

// Of a file: the group options of its methods, the merge rules of its fields, and those of all that
// its merged methods reply.
void check_group_rules(const google::protobuf::FileDescriptor& file,
                       std::vector<std::string>& problems);

}  // namespace weft::plugin
