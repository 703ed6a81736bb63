// The place of a descriptor in its .proto.
#pragma once

#include <string>

#include <google/protobuf/descriptor.h>

namespace weft::plugin {

// "store.proto:12:5: ", like the beginning of protoc's own errors; without a line if none is known.
template <class Described>
std::string location_of(const google::protobuf::FileDescriptor& file, const Described& what) {
    google::protobuf::SourceLocation at;
    if (!what.GetSourceLocation(&at)) return file.name() + ": ";
    return file.name() + ":" + std::to_string(at.start_line + 1) + ":" +
           std::to_string(at.start_column + 1) + ": ";
}

}  // namespace weft::plugin
