#include "protoc-gen-weft/generate_merge.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <google/protobuf/compiler/cpp/names.h>

#include "protoc-gen-weft/names.h"

namespace weft::plugin {

using namespace google::protobuf;

namespace {

using Variables = std::map<std::string, std::string>;

bool is_merged_by_its_fields(const FieldDescriptor& field) {
    return field.message_type() && merge_of(field) == FieldOptions::UNSET;
}

// Finds a message and the messages in it that are merged field by field, each once.
void find_messages(const Descriptor& message, std::vector<const Descriptor*>& found) {
    if (std::find(found.begin(), found.end(), &message) != found.end()) return;
    found.push_back(&message);
    for (int i = 0; i < message.field_count(); ++i) {
        const FieldDescriptor& field = *message.field(i);
        if (is_merged_by_its_fields(field)) find_messages(*field.message_type(), found);
    }
}

std::vector<const Descriptor*> merged_messages(const ServiceDescriptor& service) {
    std::vector<const Descriptor*> found;
    for (int i = 0; i < service.method_count(); ++i) {
        if (is_merged(*service.method(i))) find_messages(*service.method(i)->output_type(), found);
    }
    return found;
}

Variables merge_variables_of(const Descriptor& message) {
    return {{"type", compiler::cpp::QualifiedClassName(&message)}};
}

Variables merge_variables_of(const MethodDescriptor& method) {
    Variables variables = merge_variables_of(*method.output_type());
    variables["service"] = method.service()->name();
    variables["method"] = cpp_name(method);
    return variables;
}

// ---- fields ------------------------------------------------------------------------------------

// The function of namespace weft::merging for two values.
std::string operation_of(FieldOptions::Merge rule) {
    switch (rule) {
        case FieldOptions::SUM: return "Sum";
        case FieldOptions::MIN: return "Min";
        case FieldOptions::MAX: return "Max";
        case FieldOptions::AND: return "And";
        case FieldOptions::OR: return "Or";
        default: return "First";
    }
}

void print_message_field(const FieldDescriptor& field, const Variables& variables,
                         io::Printer& out) {
    out.Print(
        variables,
        "    if (!into.has_$field$()) {\n"
        "        if (from.has_$field$()) into.mutable_$field$()->Swap(from.mutable_$field$());\n");
    switch (merge_of(field)) {
        case FieldOptions::FIRST: break;
        case FieldOptions::USER:
            out.Print(variables,
                      "    } else if (from.has_$field$()) {\n"
                      "        static_assert(::weft::merging::HasMerge<$of$>,\n"
                      "                      \"$full_name$ has merge = USER: $header$ must have\"\n"
                      "                      \" merge($of$&, const $of$&) in its namespace\");\n"
                      "        ::weft::Status status = ::weft::merging::by_user(\n"
                      "            *into.mutable_$field$(), from.$field$());\n"
                      "        if (!status.ok()) return status;\n");
            break;
        default:
            out.Print(
                variables,
                "    } else if (from.has_$field$()) {\n"
                "        ::weft::Status status =\n"
                "            merge_fields(*into.mutable_$field$(), *from.mutable_$field$());\n"
                "        if (!status.ok()) return status;\n");
    }
    out.Print("    }\n");
}

// Combines a number or text that both replies have.
std::string combination_of(const FieldDescriptor& field) {
    const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if (is_text && merge_of(field) == FieldOptions::CONCAT) {
        return "into.mutable_$field$()->append(from.$field$());\n";
    }
    if (is_text) return "if (into.$field$().empty()) into.set_$field$(from.$field$());\n";
    return "into.set_$field$(::weft::merging::$operation$()(into.$field$(), from.$field$()));\n";
}

void print_value_field(const FieldDescriptor& field, const Variables& variables, io::Printer& out) {
    if (!field.has_presence()) {
        return out.Print(variables, ("    " + combination_of(field)).c_str());
    }
    out.Print(variables,
              "    if (!into.has_$field$()) {\n"
              "        if (from.has_$field$()) into.set_$field$(from.$field$());\n");
    if (merge_of(field) != FieldOptions::FIRST) {
        out.Print(variables, ("    } else if (from.has_$field$()) {\n"
                              "        " +
                              combination_of(field))
                                 .c_str());
    }
    out.Print("    }\n");
}

void print_list_field(const FieldDescriptor& field, const Variables& variables, io::Printer& out) {
    switch (merge_of(field)) {
        case FieldOptions::CONCAT:
            out.Print(variables, "    into.mutable_$field$()->MergeFrom(from.$field$());\n");
            break;
        case FieldOptions::FIRST:
            out.Print(variables,
                      "    if (into.$field$().empty()) "
                      "into.mutable_$field$()->Swap(from.mutable_$field$());\n");
            break;
        default:
            out.Print(variables,
                      "    ::weft::merging::each(*into.mutable_$field$(), from.$field$(), "
                      "::weft::merging::$operation$());\n");
    }
}

void print_field(const FieldDescriptor& field, io::Printer& out) {
    Variables variables{{"field", compiler::cpp::FieldName(&field)},
                        {"full_name", field.full_name()},
                        {"header", merge_header_of(*field.file())},
                        {"operation", operation_of(merge_of(field))}};
    if (field.is_repeated()) return print_list_field(field, variables, out);
    if (const Descriptor* type = field.message_type()) {
        variables["of"] = compiler::cpp::QualifiedClassName(type);
        return print_message_field(field, variables, out);
    }
    print_value_field(field, variables, out);
}

void print_message(const Descriptor& message, io::Printer& out) {
    out.Print(merge_variables_of(message),
              "\n"
              "static ::weft::Status merge_fields($type$& into, $type$& from) {\n");
    for (int i = 0; i < message.field_count(); ++i) print_field(*message.field(i), out);
    out.Print(
        "    ::weft::merging::unknown(into, from);\n"
        "    return {};\n"
        "}\n");
}

}  // namespace

void print_merge_declarations(const ServiceDescriptor& service, io::Printer& out) {
    if (!has_merged(service)) return;
    out.Print("    struct weft_merges {\n");
    for (int i = 0; i < service.method_count(); ++i) {
        if (!is_merged(*service.method(i))) continue;
        out.Print(merge_variables_of(*service.method(i)),
                  "        static ::weft::Status $method$(\n"
                  "            std::vector<std::byte>& into, ::weft::ByteView from);\n");
    }
    out.Print("    };\n");
}

void print_merge_includes(const FileDescriptor& file, io::Printer& out) {
    if (!has_merged(file)) return;
    std::set<std::string> headers;
    for (int s = 0; s < file.service_count(); ++s) {
        for (const Descriptor* message : merged_messages(*file.service(s))) {
            for (int i = 0; i < message->field_count(); ++i) {
                if (merge_of(*message->field(i)) != FieldOptions::USER) continue;
                headers.insert(merge_header_of(*message->file()));
            }
        }
    }
    out.Print("\n#include <weft/protobuf_merge.h>\n");
    if (!headers.empty()) out.Print("\n");
    for (const std::string& header : headers) {
        out.Print("#include \"$header$\"\n", "header", header);
    }
}

void print_merge_functions(const ServiceDescriptor& service, io::Printer& out) {
    if (!has_merged(service)) return;
    out.Print(
        "\n// How the replies of $service$ are merged.\n"
        "namespace weft_merges_of_$service$ {\n\n",
        "service", service.name());
    const std::vector<const Descriptor*> messages = merged_messages(service);
    for (const Descriptor* message : messages) {
        out.Print(merge_variables_of(*message),
                  "static ::weft::Status merge_fields($type$& into, $type$& from);\n");
    }
    for (const Descriptor* message : messages) print_message(*message, out);
    out.Print("\n}  // namespace weft_merges_of_$service$\n", "service", service.name());
    for (int i = 0; i < service.method_count(); ++i) {
        if (!is_merged(*service.method(i))) continue;
        out.Print(merge_variables_of(*service.method(i)),
                  "\n::weft::Status $service$Methods::weft_merges::$method$(\n"
                  "    std::vector<std::byte>& into, ::weft::ByteView from) {\n"
                  "    return ::weft::merging::replies<$type$>(\n"
                  "        into, from, weft_merges_of_$service$::merge_fields);\n"
                  "}\n");
    }
}

}  // namespace weft::plugin
