#include "protoc-gen-weft/names.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include <google/protobuf/compiler/cpp/names.h>

namespace weft::plugin {

using namespace google::protobuf;

static constexpr std::string_view keywords[] = {"alignas",
                                                "alignof",
                                                "and",
                                                "and_eq",
                                                "asm",
                                                "auto",
                                                "bitand",
                                                "bitor",
                                                "bool",
                                                "break",
                                                "case",
                                                "catch",
                                                "char",
                                                "char16_t",
                                                "char32_t",
                                                "char8_t",
                                                "class",
                                                "co_await",
                                                "co_return",
                                                "co_yield",
                                                "compl",
                                                "concept",
                                                "const",
                                                "const_cast",
                                                "consteval",
                                                "constexpr",
                                                "constinit",
                                                "continue",
                                                "decltype",
                                                "default",
                                                "delete",
                                                "do",
                                                "double",
                                                "dynamic_cast",
                                                "else",
                                                "enum",
                                                "explicit",
                                                "export",
                                                "extern",
                                                "false",
                                                "float",
                                                "for",
                                                "friend",
                                                "goto",
                                                "if",
                                                "inline",
                                                "int",
                                                "long",
                                                "mutable",
                                                "namespace",
                                                "new",
                                                "noexcept",
                                                "not",
                                                "not_eq",
                                                "nullptr",
                                                "operator",
                                                "or",
                                                "or_eq",
                                                "private",
                                                "protected",
                                                "public",
                                                "register",
                                                "reinterpret_cast",
                                                "requires",
                                                "return",
                                                "short",
                                                "signed",
                                                "sizeof",
                                                "static",
                                                "static_assert",
                                                "static_cast",
                                                "struct",
                                                "switch",
                                                "template",
                                                "this",
                                                "thread_local",
                                                "throw",
                                                "true",
                                                "try",
                                                "typedef",
                                                "typeid",
                                                "typename",
                                                "union",
                                                "unsigned",
                                                "using",
                                                "virtual",
                                                "void",
                                                "volatile",
                                                "wchar_t",
                                                "while",
                                                "xor",
                                                "xor_eq",
                                                "register_methods",
                                                "errno",
                                                "assert",
                                                "NULL",
                                                "EOF"};

std::string stem_of(const FileDescriptor& file) { return compiler::cpp::StripProto(file.name()); }

std::string wire_name(const MethodDescriptor& method) {
    return method.service()->full_name() + "/" + method.name();
}

std::string cpp_name(const MethodDescriptor& method) {
    const std::string& name = method.name();
    const std::string& service = method.service()->name();
    const bool taken =
        std::find(std::begin(keywords), std::end(keywords), name) != std::end(keywords) ||
        name == service + "Service" || name == service + "Client" ||
        name == service + "GroupClient" || name == service + "Methods";
    return taken ? name + "_" : name;
}

const MethodOptions& options_of(const MethodDescriptor& method) {
    return method.options().GetExtension(weft::method);
}

bool has_collective(const ServiceDescriptor& service) {
    for (int i = 0; i < service.method_count(); ++i) {
        if (options_of(*service.method(i)).collective()) return true;
    }
    return false;
}

bool has_collective(const FileDescriptor& file) {
    for (int i = 0; i < file.service_count(); ++i) {
        if (has_collective(*file.service(i))) return true;
    }
    return false;
}

}  // namespace weft::plugin
