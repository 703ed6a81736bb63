#include "protoc-gen-weft/group_rules.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>

#include <google/protobuf/compiler/cpp/names.h>

#include "protoc-gen-weft/names.h"
#include "protoc-gen-weft/range.h"
#include "protoc-gen-weft/source_location.h"

namespace weft::plugin {

using namespace google::protobuf;
using Merge = FieldOptions::Merge;

namespace {

// The limits of the engine (src/coll/tree.h).
constexpr std::int64_t fanout_min = 2;
constexpr std::int64_t fanout_max = 64;
constexpr std::int64_t quorum_max = 1 << 20;  // GroupView::members_max.

// ---- methods -----------------------------------------------------------------------------------

bool takes_fanout(GroupOptions::Topology topology) {
    return topology == GroupOptions::K_ARY || topology == GroupOptions::K_NOMIAL ||
           topology == GroupOptions::GREEDY;
}

void check_collective(const MethodDescriptor& method, std::vector<std::string>& problems) {
    const auto refuse = [&](const std::string& why) {
        problems.push_back(location_of(*method.file(), method) + wire_name(method) + ": " + why);
    };
    const auto refuse_outside = [&](const char* option, std::int64_t value, std::int64_t least,
                                    std::int64_t most) {
        const std::string why = why_out_of_range(option, value, least, most);
        if (!why.empty()) refuse(why);
    };
    const MethodOptions& options = options_of(method);
    const GroupOptions& group = options.group();
    if (!options.has_group()) return;
    if (!options.collective()) {
        return refuse("group is for collective methods only; add collective: true");
    }
    if (!GroupOptions::Policy_IsValid(group.policy())) {
        refuse("policy: " + std::to_string(group.policy()) + " needs a later protoc-gen-weft");
    }
    if (!GroupOptions::Topology_IsValid(group.topology())) {
        refuse("topology: " + std::to_string(group.topology()) + " needs a later protoc-gen-weft");
    }
    if (group.has_quorum() && group.policy() != GroupOptions::QUORUM) {
        refuse("quorum is for policy: QUORUM only");
    } else if (group.has_quorum() && group.quorum() == 0) {
        refuse("quorum: 0 is not a quorum; leave it out for more than half");
    } else if (group.has_quorum()) {
        refuse_outside("quorum", group.quorum(), 1, quorum_max);
    }
    if (group.has_fanout() && !takes_fanout(group.topology())) {
        refuse("fanout is for topology: K_ARY, K_NOMIAL or GREEDY only");
    } else if (group.has_fanout()) {
        refuse_outside("fanout", group.fanout(), fanout_min, fanout_max);
    }
    if (group.ordered() && !group.merge()) {
        refuse("ordered is for merge: true only; a list is always in order of rank");
    }
}

// ---- fields ------------------------------------------------------------------------------------

bool is_integer(const FieldDescriptor& field) {
    switch (field.cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
        case FieldDescriptor::CPPTYPE_INT64:
        case FieldDescriptor::CPPTYPE_UINT32:
        case FieldDescriptor::CPPTYPE_UINT64: return true;
        default: return false;
    }
}

bool is_number(const FieldDescriptor& field) {
    return is_integer(field) || field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT ||
           field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
}

// The fields that a rule is for, if `field` is not one of them; nullptr: it is.
const char* what_for(const FieldDescriptor& field, Merge rule) {
    const bool is_message = field.message_type() != nullptr;
    const bool is_bool = field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL;
    const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    switch (rule) {
        case FieldOptions::SUM: return is_number(field) ? nullptr : "numbers";
        case FieldOptions::MIN:
        case FieldOptions::MAX:
            return is_number(field) || field.enum_type() ? nullptr : "numbers and enums";
        case FieldOptions::CONCAT:
            return is_text || field.is_repeated() ? nullptr : "strings, bytes and repeated fields";
        case FieldOptions::AND:
        case FieldOptions::OR: return is_bool || is_integer(field) ? nullptr : "bools and integers";
        case FieldOptions::USER:
            return is_message && !field.is_repeated() ? nullptr : "one message (put it into one)";
        case FieldOptions::FIRST:
        case FieldOptions::UNSET: return nullptr;
        default: return "a later protoc-gen-weft";
    }
}

// The ctype that makes protobuf keep a field's accessors private; nullptr: none.
const char* hidden_ctype(const FieldDescriptor& field) {
    const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    const auto type = field.options().ctype();
    if (!is_text || type == google::protobuf::FieldOptions::STRING) return nullptr;
    return google::protobuf::FieldOptions::CType_Name(type).c_str();
}

std::string kind_of(const FieldDescriptor& field) {
    std::string kind = field.is_repeated() ? "repeated " : "";
    if (const Descriptor* type = field.message_type()) return kind + type->full_name();
    if (const EnumDescriptor* type = field.enum_type()) return kind + type->full_name();
    return kind + field.type_name();
}

class FieldRules {
  public:
    explicit FieldRules(std::vector<std::string>& problems) : problems_(problems) {}

    // Checks all fields that have a rule.
    void check_given(const Descriptor& message) {
        for (int i = 0; i < message.field_count(); ++i) {
            if (merge_of(*message.field(i)) != FieldOptions::UNSET) check_rule(*message.field(i));
        }
        for (int i = 0; i < message.nested_type_count(); ++i) check_given(*message.nested_type(i));
    }

    // Checks all fields of a merged message, and of messages in it that are merged field by field.
    void check_merged(const Descriptor& message, const std::string& method) {
        if (!merged_.insert(&message).second) return;
        if (message.extension_range_count() > 0) {
            problems_.push_back(location_of(*message.file(), message) + message.full_name() +
                                ": extensions can't be merged, as " + method + " would have to do");
        }
        for (int i = 0; i < message.field_count(); ++i) {
            const FieldDescriptor& field = *message.field(i);
            if (!check_rule(field) || merge_of(field) != FieldOptions::UNSET) continue;
            const Descriptor* type = field.message_type();
            if (!type || field.is_repeated()) {
                refuse(field, "has no rule by which " + method +
                                  " could merge it; add [(weft.field).merge = ...]");
            } else if (std::set<const Descriptor*> seen; !has_rules(*type, seen)) {
                refuse(field, "has no rule by which " + method + " could merge it, nor have the " +
                                  "fields of " + type->full_name() +
                                  "; add [(weft.field).merge = ...] here or there");
            } else {
                check_merged(*type, method);
            }
        }
    }

  private:
    void refuse(const FieldDescriptor& field, const std::string& why) {
        problems_.push_back(location_of(*field.file(), field) + field.full_name() + ": " + why);
    }

    // False: the field is refused, now or by an earlier check.
    bool check_rule(const FieldDescriptor& field) {
        const auto [at, is_new] = checked_.emplace(&field, true);
        if (!is_new) return at->second;
        const std::size_t before = problems_.size();
        const Merge rule = merge_of(field);
        if (field.is_map()) {
            refuse(field,
                   "maps can't be merged; make it a repeated message, or put it into a "
                   "message that is merged by USER");
        } else if (field.real_containing_oneof()) {
            refuse(field,
                   "parts of a oneof can't be merged; put the oneof into a message that is "
                   "merged by USER or FIRST");
        } else if (const char* ctype = hidden_ctype(field)) {
            refuse(field, std::string("ctype = ") + ctype +
                              " can't be merged: protobuf's C++ code has no accessors for it; "
                              "leave ctype out");
        } else if (const char* others = what_for(field, rule)) {
            const bool is_known = FieldOptions::Merge_IsValid(rule);
            refuse(field,
                   "merge = " + (is_known ? FieldOptions::Merge_Name(rule) : std::to_string(rule)) +
                       " is for " + others + ", not for " + kind_of(field));
        } else if (rule == FieldOptions::USER && merge_header_of(*field.file()).empty()) {
            const std::string type =
                compiler::cpp::QualifiedClassName(field.message_type()).substr(2);
            refuse(field,
                   "merge = USER needs option (weft.file).merge_header, the C++ header with"
                   " merge(" +
                       type + "&, const " + type + "&)");
        }
        return at->second = problems_.size() == before;
    }

    // Whether a message has merge rules. A message without fields needs none.
    static bool has_rules(const Descriptor& message, std::set<const Descriptor*>& seen) {
        if (message.field_count() == 0) return true;
        if (!seen.insert(&message).second) return false;
        for (int i = 0; i < message.field_count(); ++i) {
            const FieldDescriptor& field = *message.field(i);
            if (merge_of(field) != FieldOptions::UNSET) return true;
            const Descriptor* type = field.message_type();
            if (type && !field.is_repeated() && has_rules(*type, seen)) return true;
        }
        return false;
    }

    std::vector<std::string>& problems_;
    std::map<const FieldDescriptor*, bool> checked_;
    std::set<const Descriptor*> merged_;
};

// Generated code has the name between quotes after #include.
void check_header(const FileDescriptor& file, std::vector<std::string>& problems) {
    const std::string& header = merge_header_of(file);
    const bool is_name = std::all_of(header.begin(), header.end(), [](unsigned char c) {
        return std::isalnum(c) ||
               std::string_view("_-+./").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (is_name) return;
    problems.push_back(file.name() +
                       ": (weft.file).merge_header is no name of a header: it may contain only "
                       "letters, digits and _-+./");
}

}  // namespace

void check_group_rules(const FileDescriptor& file, std::vector<std::string>& problems) {
    check_header(file, problems);
    FieldRules rules(problems);
    for (int i = 0; i < file.message_type_count(); ++i) rules.check_given(*file.message_type(i));
    for (int s = 0; s < file.service_count(); ++s) {
        const ServiceDescriptor& service = *file.service(s);
        for (int m = 0; m < service.method_count(); ++m) {
            const MethodDescriptor& method = *service.method(m);
            check_collective(method, problems);
            if (is_merged(method)) rules.check_merged(*method.output_type(), wire_name(method));
        }
    }
}

}  // namespace weft::plugin
