#include "protoc-gen-weft/generate_stubs.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/compiler/cpp/names.h>

#include "protoc-gen-weft/generate_merge.h"
#include "protoc-gen-weft/names.h"

namespace weft::plugin {

using namespace google::protobuf;

namespace {

using Variables = std::map<std::string, std::string>;

std::vector<std::string> package_of(const FileDescriptor& file) {
    std::vector<std::string> parts;
    std::string_view rest = file.package();
    while (!rest.empty()) {
        const std::size_t dot = rest.find('.');
        parts.emplace_back(rest.substr(0, dot));
        rest = dot == rest.npos ? "" : rest.substr(dot + 1);
    }
    return parts;
}

// The namespace of protobuf's own code: "a::b".
std::string namespace_of(const FileDescriptor& file) {
    std::string joined;
    for (const std::string& part : package_of(file)) joined += (joined.empty() ? "" : "::") + part;
    return joined;
}

Variables variables_of(const ServiceDescriptor& service) {
    return {{"service", service.name()}, {"full_name", service.full_name()}};
}

// The C++ name in Topology::Shape.
std::string shape_of(GroupOptions::Topology topology) {
    switch (topology) {
        case GroupOptions::FLAT: return "flat";
        case GroupOptions::K_ARY: return "k_ary";
        case GroupOptions::K_NOMIAL: return "k_nomial";
        case GroupOptions::GREEDY: return "greedy";
        default: return "automatic";
    }
}

// The GroupOptions that differ from the defaults, as designated initialisers of GroupCallOptions.
std::string initialisers_of(const GroupOptions& group) {
    std::string text;
    const auto add = [&text](const std::string& one) { text += (text.empty() ? "" : ", ") + one; };
    if (group.policy() == GroupOptions::QUORUM) add(".policy = ::weft::Policy::quorum");
    if (group.policy() == GroupOptions::BEST_EFFORT) add(".policy = ::weft::Policy::best_effort");
    if (group.has_quorum()) add(".quorum = " + std::to_string(group.quorum()));
    if (group.topology() != GroupOptions::AUTOMATIC || group.by_host()) {
        std::string topology = ".shape = ::weft::Topology::Shape::" + shape_of(group.topology());
        if (group.has_fanout()) topology += ", .fanout = " + std::to_string(group.fanout());
        if (group.by_host()) topology += ", .by_host = true";
        add(".topology = {" + topology + "}");
    }
    if (group.merge()) {
        add(std::string(".reduction = {.operation = ::weft::Reduction::Operation::method") +
            (group.ordered() ? ", .ordered = true}" : "}"));
    }
    return text;
}

// The MethodOptions that differ from the defaults, as designated initialisers.
std::string initialisers_of(const MethodDescriptor& method) {
    const MethodOptions& options = options_of(method);
    std::string text;
    if (options.has_timeout_ms()) {
        text += ", .timeout = ::std::chrono::milliseconds(" + std::to_string(options.timeout_ms()) +
                ")";
    }
    if (options.idempotent()) text += ", .idempotent = true";
    if (options.priority() > 0) text += ", .priority = " + std::to_string(options.priority());
    if (!options.collective()) return text;
    text += ", .collective = true";
    if (options.group().merge()) text += ", .merge = &weft_merges::" + cpp_name(method);
    if (const std::string group = initialisers_of(options.group()); !group.empty()) {
        text += ", .group = {" + group + "}";
    }
    return text;
}

Variables variables_of(const MethodDescriptor& method) {
    Variables variables = variables_of(*method.service());
    variables["method"] = cpp_name(method);
    variables["wire_name"] = wire_name(method);
    variables["in"] = compiler::cpp::QualifiedClassName(method.input_type());
    variables["out"] = compiler::cpp::QualifiedClassName(method.output_type());
    const bool is_inline = options_of(method).inline_handler();
    variables["outcome"] = is_inline ? "::weft::Status" : "::weft::Task<::weft::Status>";
    variables["return"] = is_inline ? "return" : "co_return";
    variables["initialisers"] = initialisers_of(method);
    variables["result"] = is_merged(method) ? "MergedResult" : "GroupResult";
    return variables;
}

template <class Print>
void for_each_method(const ServiceDescriptor& service, Print print) {
    for (int i = 0; i < service.method_count(); ++i) print(*service.method(i));
}

// The text of one comment line. Control characters are replaced, because some end a line for some
// compilers; a backslash at the end would continue the comment on the next line.
std::string harmless(std::string_view line) {
    std::string text(line);
    for (char& c : text) {
        if (static_cast<unsigned char>(c) < ' ' && c != '\t') c = ' ';
    }
    text.erase(text.find_last_not_of(" \t") + 1);
    return text.ends_with('\\') ? text + " //" : text;
}

// Prints the comment in front of a method in the .proto.
void print_comment(const MethodDescriptor& method, io::Printer& out) {
    SourceLocation at;
    if (!method.GetSourceLocation(&at)) return;
    std::string_view rest = at.leading_comments;
    while (!rest.empty()) {
        const std::size_t end = rest.find('\n');
        const std::string_view line = rest.substr(0, end);
        out.PrintRaw("    //" + harmless(line) + "\n");
        rest = end == rest.npos ? "" : rest.substr(end + 1);
    }
}

void print_methods(const ServiceDescriptor& service, io::Printer& out) {
    out.Print(variables_of(service), "\nstruct $service$Methods {\n");
    print_merge_declarations(service, out);
    for_each_method(service, [&](const MethodDescriptor& method) {
        out.Print(variables_of(method),
                  "    static constexpr ::weft::ProtoMethod<$in$, $out$> $method${\n"
                  "        .id = ::weft::MethodId(\"$wire_name$\")$initialisers$};\n");
    });
    out.Print("};\n");
}

void print_service(const ServiceDescriptor& service, io::Printer& out) {
    out.Print(variables_of(service),
              "\n// Override the methods to serve; the others return UNIMPLEMENTED.\n"
              "class $service$Service : public ::weft::Service {\n"
              "  public:\n");
    for_each_method(service, [&](const MethodDescriptor& method) {
        print_comment(method, out);
        out.Print(variables_of(method),
                  "    virtual $outcome$ $method$(\n"
                  "        ::weft::Call& call, const $in$& in, $out$& out);\n");
    });
    out.Print(
        "\n"
        "    void register_methods(::weft::MethodRegistrar& registrar) override;\n"
        "};\n");
}

// Names of template parameters begin with Weft, so that methods are unlikely to have them.
void print_client(const ServiceDescriptor& service, io::Printer& out) {
    out.Print(variables_of(service),
              "\nclass $service$Client {\n"
              "  public:\n"
              "    explicit $service$Client(::weft::Channel channel)\n"
              "        : weft_channel_(::std::move(channel)) {}\n");
    for_each_method(service, [&](const MethodDescriptor& method) {
        out.Print("\n");
        print_comment(method, out);
        out.Print(variables_of(method),
                  "    ::weft::ProtoCall<$out$> $method$(\n"
                  "        const $in$& in, ::weft::CallOptions options = {}) const {\n"
                  "        return {weft_channel_, $service$Methods::$method$, in, options};\n"
                  "    }\n"
                  "    template <::weft::Receives<$out$> WeftDone>\n"
                  "    ::weft::OperationId $method$(\n"
                  "        const $in$& in, const ::weft::CallOptions& options,\n"
                  "        WeftDone&& done) const {\n"
                  "        return ::weft::call(weft_channel_, $service$Methods::$method$, in,\n"
                  "                            options, ::std::forward<WeftDone>(done));\n"
                  "    }\n"
                  "    template <class WeftToken>\n"
                  "        requires(!::weft::Receives<WeftToken, $out$>)\n"
                  "    decltype(auto) $method$(\n"
                  "        const $in$& in, const ::weft::CallOptions& options,\n"
                  "        WeftToken&& token) const {\n"
                  "        return ::weft::call(weft_channel_, $service$Methods::$method$, in,\n"
                  "                            options, ::std::forward<WeftToken>(token));\n"
                  "    }\n");
    });
    out.Print(
        "\n"
        "  private:\n"
        "    ::weft::Channel weft_channel_;\n"
        "};\n");
}

// With one request for all ranks, and with one for each; both awaitable and with a token.
void print_group_method(const MethodDescriptor& method, io::Printer& out) {
    const Variables variables = variables_of(method);
    out.Print(variables,
              "    ::weft::GroupCall<::weft::$result$<$out$>> $method$(\n"
              "        const $in$& in, ::weft::GroupCallOptions options = {}) const {\n"
              "        return {weft_group_, $service$Methods::$method$, in, options};\n"
              "    }\n"
              "    template <class WeftToken>\n"
              "    decltype(auto) $method$(\n"
              "        const $in$& in, const ::weft::GroupCallOptions& options,\n"
              "        WeftToken&& token) const {\n"
              "        return ::weft::collective<::weft::$result$<$out$>>(\n"
              "            weft_group_, $service$Methods::$method$, in, options,\n"
              "            ::std::forward<WeftToken>(token));\n"
              "    }\n");
    out.Print(variables,
              "    template <::weft::RequestsOf<$in$> WeftRequests>\n"
              "    ::weft::GroupCall<::weft::$result$<$out$>> $method$(\n"
              "        WeftRequests&& each, ::weft::GroupCallOptions options = {}) const {\n"
              "        return {weft_group_, $service$Methods::$method$,\n"
              "                ::std::span<const ::weft::RankRequest<$in$>>(each), options};\n"
              "    }\n"
              "    template <::weft::RequestsOf<$in$> WeftRequests, class WeftToken>\n"
              "    decltype(auto) $method$(\n"
              "        WeftRequests&& each, const ::weft::GroupCallOptions& options,\n"
              "        WeftToken&& token) const {\n"
              "        return ::weft::scatter<::weft::$result$<$out$>>(\n"
              "            weft_group_, $service$Methods::$method$,\n"
              "            ::std::span<const ::weft::RankRequest<$in$>>(each), options,\n"
              "            ::std::forward<WeftToken>(token));\n"
              "    }\n");
}

void print_group_client(const ServiceDescriptor& service, io::Printer& out) {
    out.Print(variables_of(service),
              "\n// The collective methods, called on every member of a group.\n"
              "class $service$GroupClient {\n"
              "  public:\n"
              "    explicit $service$GroupClient(::weft::Group group)\n"
              "        : weft_group_(::std::move(group)) {}\n");
    for_each_method(service, [&](const MethodDescriptor& method) {
        if (!options_of(method).collective()) return;
        out.Print("\n");
        print_comment(method, out);
        print_group_method(method, out);
    });
    out.Print(
        "\n"
        "  private:\n"
        "    ::weft::Group weft_group_;\n"
        "};\n");
}

// Deprecated names of a .proto warn where a program uses them, not in generated code.
void print_quiet_begin(io::Printer& out) {
    out.Print(
        "\n"
        "#pragma GCC diagnostic push\n"
        "#pragma GCC diagnostic ignored \"-Wdeprecated-declarations\"\n");
}

void print_quiet_end(io::Printer& out) { out.Print("\n#pragma GCC diagnostic pop\n"); }

}  // namespace

// A name in capitals may be a macro of any header, which would rename the method in this
// translation unit only: generated code stops there with #error.
static void print_macro_guards(const FileDescriptor& file, io::Printer& out) {
    for (int i = 0; i < file.service_count(); ++i) {
        for_each_method(*file.service(i), [&](const MethodDescriptor& method) {
            const std::string name = cpp_name(method);
            if (std::any_of(name.begin(), name.end(),
                            [](char c) { return c >= 'a' && c <= 'z'; })) {
                return;
            }
            out.Print(
                "\n"
                "#ifdef $name$\n"
                "#error \"method $wire$: its name is a macro here; rename the method\"\n"
                "#endif\n",
                "name", name, "wire", wire_name(method));
        });
    }
}

void print_header(const FileDescriptor& file, io::Printer& out) {
    const Variables variables{{"file", file.name()}, {"stem", stem_of(file)}};
    out.Print(variables,
              "// Generated by protoc-gen-weft from $file$. Do not edit.\n"
              "#pragma once\n\n");
    if (has_collective(file)) {
        out.Print("#include <weft/group.h>\n#include <weft/protobuf_group.h>\n");
    } else if (file.service_count() > 0) {
        out.Print("#include <weft/protobuf.h>\n");
    }
    // Around protobuf's header, too: it uses deprecated enum values.
    print_quiet_begin(out);
    out.Print(variables, "\n#include \"$stem$.pb.h\"\n");
    if (file.service_count() == 0) return print_quiet_end(out);
    print_macro_guards(file, out);
    const std::string space = namespace_of(file);
    if (!space.empty()) out.Print("\nnamespace $space$ {\n", "space", space);
    for (int i = 0; i < file.service_count(); ++i) {
        const ServiceDescriptor& service = *file.service(i);
        print_methods(service, out);
        print_service(service, out);
        print_client(service, out);
        if (has_collective(service)) print_group_client(service, out);
    }
    if (!space.empty()) out.Print("\n}  // namespace $space$\n", "space", space);
    print_quiet_end(out);
}

void print_source(const FileDescriptor& file, io::Printer& out) {
    out.Print(
        "// Generated by protoc-gen-weft from $file$. Do not edit.\n"
        "#include \"$stem$.weft.h\"\n",
        "file", file.name(), "stem", stem_of(file));
    if (file.service_count() == 0) return;
    print_merge_includes(file, out);
    print_quiet_begin(out);
    const std::string space = namespace_of(file);
    if (!space.empty()) out.Print("\nnamespace $space$ {\n", "space", space);
    for (int i = 0; i < file.service_count(); ++i) {
        const ServiceDescriptor& service = *file.service(i);
        for_each_method(service, [&](const MethodDescriptor& method) {
            out.Print(variables_of(method),
                      "\n$outcome$ $service$Service::$method$(\n"
                      "    ::weft::Call&, const $in$&, $out$&) {\n"
                      "    $return$ ::weft::detail::not_served($service$Methods::$method$.id);\n"
                      "}\n");
        });
        out.Print(variables_of(service),
                  "\nvoid $service$Service::register_methods(\n"
                  "    ::weft::MethodRegistrar& registrar) {\n");
        for_each_method(service, [&](const MethodDescriptor& method) {
            out.Print(variables_of(method),
                      "    ::weft::serve<&$service$Service::$method$>(\n"
                      "        registrar, *this, $service$Methods::$method$);\n");
        });
        if (service.method_count() == 0) out.Print("    (void)registrar;\n");
        out.Print("}\n");
        print_merge_functions(service, out);
    }
    if (!space.empty()) out.Print("\n}  // namespace $space$\n", "space", space);
    print_quiet_end(out);
}

}  // namespace weft::plugin
