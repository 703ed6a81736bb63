#include "protoc-gen-weft/rules.h"

#include <map>
#include <set>
#include <utility>

#include <google/protobuf/compiler/cpp/names.h>

#include "protoc-gen-weft/group_rules.h"
#include "protoc-gen-weft/names.h"
#include "protoc-gen-weft/range.h"
#include "protoc-gen-weft/source_location.h"

namespace weft::plugin {

using namespace google::protobuf;

namespace {

constexpr std::int64_t timeout_ms_max = UINT32_MAX;
constexpr std::int64_t priority_max = 7;  // As in include/weft/call_options.h.

// The path of the first BulkRef in a message, "range.source"; empty: none.
std::string path_to_bulk(const Descriptor& message, std::set<const Descriptor*>& seen) {
    if (!seen.insert(&message).second) return "";
    for (int i = 0; i < message.field_count(); ++i) {
        const FieldDescriptor& field = *message.field(i);
        const Descriptor* type = field.message_type();
        if (!type) continue;
        if (type->full_name() == "weft.BulkRef") return field.name();
        if (const std::string path = path_to_bulk(*type, seen); !path.empty()) {
            return field.name() + "." + path;
        }
    }
    return "";
}

void check_method(const MethodDescriptor& method, std::vector<std::string>& problems) {
    const FileDescriptor& file = *method.file();
    const auto refuse = [&](const std::string& why) {
        problems.push_back(location_of(file, method) + wire_name(method) + ": " + why);
    };
    const auto refuse_outside = [&](const char* option, std::int64_t value, std::int64_t least,
                                    std::int64_t most) {
        const std::string why = why_out_of_range(option, value, least, most);
        if (!why.empty()) refuse(why);
    };
    const auto refuse_lite = [&](const Descriptor& type) {
        if (type.file()->options().optimize_for() != google::protobuf::FileOptions::LITE_RUNTIME) {
            return;
        }
        refuse(type.full_name() +
               " has optimize_for = LITE_RUNTIME: its memory can't be bounded; remove that "
               "option from " +
               type.file()->name());
    };
    const MethodOptions& options = options_of(method);
    if (method.client_streaming() || method.server_streaming()) {
        refuse("streaming is not supported yet; pass large data by weft.BulkRef");
    }
    refuse_lite(*method.input_type());
    if (method.input_type() != method.output_type()) refuse_lite(*method.output_type());
    if (options.one_way()) {
        refuse("one_way is not supported yet; reply with an empty message");
    }
    if (options.has_timeout_ms() && options.timeout_ms() == 0) {
        refuse("timeout_ms: 0 expires before the call is sent; leave it out for the default");
    } else if (options.has_timeout_ms()) {
        refuse_outside("timeout_ms", options.timeout_ms(), 1, timeout_ms_max);
    }
    refuse_outside("priority", options.priority(), 0, priority_max);
    if (!options.collective()) return;
    std::set<const Descriptor*> seen;
    if (const std::string path = path_to_bulk(*method.input_type(), seen); !path.empty()) {
        refuse("a collective method can't take a weft.BulkRef (" + path + " of " +
               method.input_type()->full_name() +
               "): every member would use the same memory at once; call the members one by one");
    }
}

// C++ names in the namespace of a file, and the full names of their owners in the .proto.
using Names = std::map<std::string, std::string>;

void take_classes(const Descriptor& message, Names& names) {
    names.emplace(compiler::cpp::ClassName(&message), message.full_name());
    for (int i = 0; i < message.enum_type_count(); ++i) {
        const EnumDescriptor& type = *message.enum_type(i);
        names.emplace(compiler::cpp::ClassName(&type), type.full_name());
    }
    for (int i = 0; i < message.nested_type_count(); ++i) {
        take_classes(*message.nested_type(i), names);
    }
}

void take_classes(const FileDescriptor& file, Names& names) {
    for (int i = 0; i < file.message_type_count(); ++i) take_classes(*file.message_type(i), names);
}

// The names of `file`, and those of its imports in the same namespace.
Names names_beside(const FileDescriptor& file) {
    Names names;
    take_classes(file, names);
    for (int i = 0; i < file.dependency_count(); ++i) {
        const FileDescriptor& other = *file.dependency(i);
        if (other.package() != file.package()) continue;
        take_classes(other, names);
        for (int s = 0; s < other.service_count(); ++s) {
            const ServiceDescriptor& service = *other.service(s);
            for (std::string& name : class_names(service)) {
                names.emplace(std::move(name), service.full_name());
            }
        }
    }
    return names;
}

// Whether a symbol of the .proto has this name, also in C++. A service has it in C++ only if protoc
// generates a class of its own for services (cc_generic_services).
bool is_symbol(const DescriptorPool& pool, const std::string& full_name) {
    const ServiceDescriptor* const service = pool.FindServiceByName(full_name);
    return service ? service->file()->options().cc_generic_services()
                   : pool.FindFileContainingSymbol(full_name) != nullptr;
}

void check_class_names(const ServiceDescriptor& service, Names& taken,
                       std::vector<std::string>& problems) {
    const FileDescriptor& file = *service.file();
    const std::string scope = file.package().empty() ? "" : file.package() + ".";
    for (const std::string& name : class_names(service)) {
        const std::string symbol = scope + name;
        if (is_symbol(*file.pool(), symbol)) taken.emplace(name, symbol);
        const auto [at, is_new] = taken.emplace(name, service.full_name());
        if (is_new) continue;
        std::string problem = location_of(file, service) + "a class generated for ";
        problem += service.full_name() + " would be called " + name;
        problem += ", as that of " + at->second + " is; rename one of them";
        problems.push_back(std::move(problem));
    }
}

using Taken = std::map<std::uint64_t, std::string>;

void take_hashes(const FileDescriptor& file, MethodHash hash, Taken& taken,
                 std::set<const FileDescriptor*>& seen, std::vector<std::string>* problems) {
    if (!seen.insert(&file).second) return;
    for (int i = 0; i < file.dependency_count(); ++i) {
        take_hashes(*file.dependency(i), hash, taken, seen, nullptr);
    }
    for (int s = 0; s < file.service_count(); ++s) {
        for (int m = 0; m < file.service(s)->method_count(); ++m) {
            const MethodDescriptor& method = *file.service(s)->method(m);
            const auto [at, is_new] = taken.emplace(hash(wire_name(method)), wire_name(method));
            if (is_new || !problems) continue;
            problems->push_back(location_of(file, method) + wire_name(method) +
                                ": has the same hash as " + at->second + "; rename one of them");
        }
    }
}

}  // namespace

std::vector<std::string> find_problems(const FileDescriptor& file, MethodHash hash) {
    std::vector<std::string> problems;
    Names names = names_beside(file);
    for (int s = 0; s < file.service_count(); ++s) {
        const ServiceDescriptor& service = *file.service(s);
        check_class_names(service, names, problems);
        for (int m = 0; m < service.method_count(); ++m) check_method(*service.method(m), problems);
    }
    check_group_rules(file, problems);
    Taken taken;
    std::set<const FileDescriptor*> seen;
    take_hashes(file, hash, taken, seen, &problems);
    return problems;
}

}  // namespace weft::plugin
