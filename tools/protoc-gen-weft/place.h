// Where something stands in its .proto.
#pragma once

#include <string>

#include <google/protobuf/descriptor.h>

namespace weft::plugin {

// "store.proto:12:5: ", as protoc's own errors begin; without a line where none is known.
template <class Described>
std::string place_of(const google::protobuf::FileDescriptor& file, const Described& what) {
    google::protobuf::SourceLocation at;
    if (!what.GetSourceLocation(&at)) return file.name() + ": ";
    return file.name() + ":" + std::to_string(at.start_line + 1) + ":" +
           std::to_string(at.start_column + 1) + ": ";
}

}  // namespace weft::plugin
