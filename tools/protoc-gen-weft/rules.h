// Finds what weft can't serve in a .proto; a problem names its place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/descriptor.h>

#include <weft/method.h>

namespace weft::plugin {

using MethodHash = std::uint64_t (*)(std::string_view full_name);

// One line per problem, "store.proto:12:5: what is wrong and what to do"; empty: none.
// Hashes of methods are also compared with those of the files that this file imports.
std::vector<std::string> find_problems(const google::protobuf::FileDescriptor& file,
                                       MethodHash hash = method_hash);

}  // namespace weft::plugin
