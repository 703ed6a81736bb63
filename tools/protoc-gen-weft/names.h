// How things are called: on the wire and in generated C++.
#pragma once

#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>

#include <weft/options.pb.h>

namespace weft::plugin {

// "store.proto" -> "store".
std::string stem_of(const google::protobuf::FileDescriptor& file);
// "package.Service/Method".
std::string wire_name(const google::protobuf::MethodDescriptor& method);
// The method's name, with an underscore behind it, and a number where another method has that name,
// where C++ or the generated class has another use for the word. One in capitals is left alone, and
// generated code refuses to compile where a macro has that name.
std::string cpp_name(const google::protobuf::MethodDescriptor& method);

// Of the classes made for a service.
std::vector<std::string> class_names(const google::protobuf::ServiceDescriptor& service);

const MethodOptions& options_of(const google::protobuf::MethodDescriptor& method);
FieldOptions::Merge merge_of(const google::protobuf::FieldDescriptor& field);
const std::string& merge_header_of(const google::protobuf::FileDescriptor& file);

// Whether a group's replies become one.
bool is_merged(const google::protobuf::MethodDescriptor& method);
bool has_merged(const google::protobuf::ServiceDescriptor& service);
bool has_merged(const google::protobuf::FileDescriptor& file);
bool has_collective(const google::protobuf::ServiceDescriptor& service);
bool has_collective(const google::protobuf::FileDescriptor& file);

}  // namespace weft::plugin
