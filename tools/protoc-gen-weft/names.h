// Names on the wire and in generated C++.
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
// The method's name. If C++ or the generated class uses that name, an underscore follows it, and a
// number if another method has the name with the underscore. Other names in capitals do not change;
// generated code does not compile where a macro has that name.
std::string cpp_name(const google::protobuf::MethodDescriptor& method);

// Names of the classes generated for a service.
std::vector<std::string> class_names(const google::protobuf::ServiceDescriptor& service);

const MethodOptions& options_of(const google::protobuf::MethodDescriptor& method);
FieldOptions::Merge merge_of(const google::protobuf::FieldDescriptor& field);
const std::string& merge_header_of(const google::protobuf::FileDescriptor& file);

// Whether the replies of a group are merged into one.
bool is_merged(const google::protobuf::MethodDescriptor& method);
bool has_merged(const google::protobuf::ServiceDescriptor& service);
bool has_merged(const google::protobuf::FileDescriptor& file);
bool has_collective(const google::protobuf::ServiceDescriptor& service);
bool has_collective(const google::protobuf::FileDescriptor& file);

}  // namespace weft::plugin
