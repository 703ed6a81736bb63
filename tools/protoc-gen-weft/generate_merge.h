// The text of the functions that merge replies.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/printer.h>

namespace weft::plugin {

// In the class of a service's methods: one for each that is merged.
void print_merge_declarations(const google::protobuf::ServiceDescriptor& service,
                              google::protobuf::io::Printer& out);
// What the source includes for them.
void print_merge_includes(const google::protobuf::FileDescriptor& file,
                          google::protobuf::io::Printer& out);
// They, and behind them one for each message that they come upon.
void print_merge_functions(const google::protobuf::ServiceDescriptor& service,
                           google::protobuf::io::Printer& out);

}  // namespace weft::plugin
