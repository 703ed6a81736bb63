#include "protoc-gen-weft/rules.h"

#include <map>
#include <set>

#include "protoc-gen-weft/group_rules.h"
#include "protoc-gen-weft/names.h"
#include "protoc-gen-weft/place.h"

namespace weft::plugin {

using namespace google::protobuf;

namespace {

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
    if (!options.collective()) return;
    std::set<const Descriptor*> seen;
    if (const std::string path = path_to_bulk(*method.input_type(), seen); !path.empty()) {
        refuse("a collective method can't take a weft.BulkRef (" + path + " of " +
               method.input_type()->full_name() +
               "): every member would use the same memory at once; call the members one by one");
    }
}

void check_class_names(const ServiceDescriptor& service, std::vector<std::string>& problems) {
    const FileDescriptor& file = *service.file();
    for (const char* suffix : {"Service", "Client", "GroupClient", "Methods"}) {
        const std::string name = service.full_name() + suffix;
        if (suffix == std::string_view("GroupClient") && !has_collective(service)) continue;
        if (!file.pool()->FindMessageTypeByName(name) && !file.pool()->FindEnumTypeByName(name) &&
            !file.pool()->FindServiceByName(name)) {
            continue;
        }
        problems.push_back(place_of(file, service) + "the class generated for " +
                           service.full_name() + " would be called " + name +
                           ", which exists; rename one of them");
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
    for (int s = 0; s < file.service_count(); ++s) {
        const ServiceDescriptor& service = *file.service(s);
        check_class_names(service, problems);
        for (int m = 0; m < service.method_count(); ++m) check_method(*service.method(m), problems);
    }
    check_group_rules(file, problems);
    Taken taken;
    std::set<const FileDescriptor*> seen;
    take_hashes(file, hash, taken, seen, &problems);
    return problems;
}

}  // namespace weft::plugin
