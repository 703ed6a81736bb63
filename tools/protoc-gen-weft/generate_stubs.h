// The text of <name>.weft.h and <name>.weft.cc.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/printer.h>

namespace weft::plugin {

// Require a file without problems (rules.h).
void print_header(const google::protobuf::FileDescriptor& file, google::protobuf::io::Printer& out);
void print_source(const google::protobuf::FileDescriptor& file, google::protobuf::io::Printer& out);

}  // namespace weft::plugin
