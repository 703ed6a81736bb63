// The text of the functions that merge replies.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/printer.h>

namespace weft::plugin {

// For the class of a service's methods: declares a function for each merged method.
void print_merge_declarations(const google::protobuf::ServiceDescriptor& service,
                              google::protobuf::io::Printer& out);
// The headers that the merge functions need.
void print_merge_includes(const google::protobuf::FileDescriptor& file,
                          google::protobuf::io::Printer& out);
// Defines a function for each message that is merged, then those of the merged methods.
void print_merge_functions(const google::protobuf::ServiceDescriptor& service,
                           google::protobuf::io::Printer& out);

}  // namespace weft::plugin
