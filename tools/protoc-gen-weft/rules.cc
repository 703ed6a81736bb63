#include "protoc-gen-weft/rules.h"

#include <map>
#include <set>
#include <type_traits>

#include <google/protobuf/compiler/cpp/names.h>

#include "protoc-gen-weft/group_rules.h"
#include "protoc-gen-weft/names.h"
#include "protoc-gen-weft/place.h"

namespace weft::plugin {

using namespace google::protobuf;

namespace {

constexpr std::uint32_t priority_max = 7;  // As include/weft/call_options.h has it.

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
        problems.push_back(place_of(file, method) + wire_name(method) + ": " + why);
    };
    const auto refuse_lite = [&](const Descriptor& type) {
        if (type.file()->options().optimize_for() != google::protobuf::FileOptions::LITE_RUNTIME) {
            return;
        }
        refuse(type.full_name() +
               " is of optimize_for = LITE_RUNTIME, whose memory can't be bounded; leave that out "
               "of " +
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
        refuse("timeout_ms: 0 would expire before it is sent; leave it out for the default");
    }
    if (options.priority() > priority_max) {
        refuse("priority: " + std::to_string(options.priority()) + " is not from 0 to " +
               std::to_string(priority_max));
    }
    if (!options.collective()) return;
    std::set<const Descriptor*> seen;
    if (const std::string path = path_to_bulk(*method.input_type(), seen); !path.empty()) {
        refuse("a collective method can't take a weft.BulkRef (" + path + " of " +
               method.input_type()->full_name() +
               "): every member would use the same memory at once; call the members one by one");
    }
}

// The message or enum whose class has this name, "Store.Client" for Store_Client; empty: none.
template <class Scope>
std::string find_class(const Scope& scope, const std::string& name) {
    for (int i = 0; i < scope.enum_type_count(); ++i) {
        if (compiler::cpp::ClassName(scope.enum_type(i)) == name) {
            return scope.enum_type(i)->full_name();
        }
    }
    const auto find_in = [&](const Descriptor& message) {
        if (compiler::cpp::ClassName(&message) == name) return message.full_name();
        return find_class(message, name);
    };
    if constexpr (std::is_same_v<Scope, Descriptor>) {
        for (int i = 0; i < scope.nested_type_count(); ++i) {
            if (const std::string found = find_in(*scope.nested_type(i)); !found.empty()) {
                return found;
            }
        }
    } else {
        for (int i = 0; i < scope.message_type_count(); ++i) {
            if (const std::string found = find_in(*scope.message_type(i)); !found.empty()) {
                return found;
            }
        }
    }
    return "";
}

// What is called `name` in C++ in the namespace of `file`; empty: nothing in what it can see.
std::string find_holder(const FileDescriptor& file, const std::string& name) {
    const DescriptorPool& pool = *file.pool();
    const std::string full_name = file.package().empty() ? name : file.package() + "." + name;
    const ServiceDescriptor* const service = pool.FindServiceByName(full_name);
    // A service alone makes no class, unless protoc is asked for one.
    if (service && service->file()->options().cc_generic_services()) return full_name;
    if (!service && pool.FindFileContainingSymbol(full_name)) return full_name;
    if (const std::string found = find_class(file, name); !found.empty()) return found;
    for (int i = 0; i < file.dependency_count(); ++i) {
        if (file.dependency(i)->package() != file.package()) continue;
        if (const std::string found = find_class(*file.dependency(i), name); !found.empty()) {
            return found;
        }
    }
    return "";
}

using ClassNames = std::map<std::string, const ServiceDescriptor*>;

// `taken`: by services before this one, in the namespace of it.
void check_class_names(const ServiceDescriptor& service, ClassNames& taken,
                       std::vector<std::string>& problems) {
    const FileDescriptor& file = *service.file();
    for (const std::string& name : class_names(service)) {
        const auto [at, is_new] = taken.emplace(name, &service);
        const std::string holder = is_new ? find_holder(file, name) : at->second->full_name();
        if (holder.empty()) continue;
        problems.push_back(place_of(file, service) + "a class generated for " +
                           service.full_name() + " would be called " + name + ", as that of " +
                           holder + " is; rename one of them");
    }
}

void take_class_names(const FileDescriptor& file, ClassNames& taken) {
    for (int i = 0; i < file.dependency_count(); ++i) {
        const FileDescriptor& other = *file.dependency(i);
        if (other.package() != file.package()) continue;
        for (int s = 0; s < other.service_count(); ++s) {
            for (const std::string& name : class_names(*other.service(s))) {
                taken.emplace(name, other.service(s));
            }
        }
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
            problems->push_back(place_of(file, method) + wire_name(method) +
                                ": has the same hash as " + at->second + "; rename one of them");
        }
    }
}

}  // namespace

std::vector<std::string> find_problems(const FileDescriptor& file, MethodHash hash) {
    std::vector<std::string> problems;
    ClassNames names;
    take_class_names(file, names);
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
