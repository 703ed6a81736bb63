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
                                                "weft_merges",
                                                "weft_channel_",
                                                "weft_group_",
                                                "WeftDone",
                                                "WeftRequests",
                                                "WeftToken"};

// Macros of compilers (linux, unix), of the headers of glibc and of Qt, between spaces. A program
// may include any of these headers before or after generated code.
static constexpr std::string_view macros =
    " "
    "alloca assert assert_perror basename be16toh be32toh be64toh bswap_16 bswap_32 "
    "bswap_64 clrbit direct emit errno foreach forever h_addr h_errno hostalias howmany "
    "htobe16 htobe32 htobe64 htole16 htole32 htole64 isascii isclr isset issubnormal le16toh "
    "le32toh "
    "le64toh linux major makedev math_errhandling minor no_argument offsetof "
    "optional_argument powerof2 pthread_cleanup_pop pthread_cleanup_pop_restore_np "
    "pthread_cleanup_push pthread_cleanup_push_defer_np putlong putshort "
    "required_argument res_close res_init roundup s6_addr s6_addr16 s6_addr32 sa_handler "
    "sa_sigaction sched_priority setbit setjmp si_addr si_addr_lsb si_arch si_band "
    "si_call_addr si_fd si_int si_lower si_overrun si_pid si_pkey si_ptr si_status "
    "si_stime si_syscall si_timerid si_uid si_upper si_utime si_value "
    "sigev_notify_attributes sigev_notify_function sigmask signals sigsetjmp slots "
    "st_atime st_ctime st_mtime stderr stdin stdout strdupa strndupa timeradd timerclear "
    "timercmp timerisset timersub toascii unix va_arg va_copy va_end va_start BUFSIZ CTRL "
    "EOF INFINITY NAN NDEBUG NULL NZERO SOMAXCONN ";

static bool is_macro(const std::string& name) {
    return macros.find(" " + name + " ") != macros.npos;
}

std::string stem_of(const FileDescriptor& file) { return compiler::cpp::StripProto(file.name()); }

std::string wire_name(const MethodDescriptor& method) {
    return method.service()->full_name() + "/" + method.name();
}

std::vector<std::string> class_names(const ServiceDescriptor& service) {
    std::vector<std::string> names;
    for (const char* suffix : {"Service", "Client", "Methods"}) {
        names.push_back(service.name() + suffix);
    }
    if (has_collective(service)) names.push_back(service.name() + "GroupClient");
    return names;
}

// Whether C++, a macro, a member of generated classes or a generated class already has the name.
static bool is_taken(const std::string& name, const ServiceDescriptor& service) {
    const std::vector<std::string> classes = class_names(service);
    return std::find(std::begin(keywords), std::end(keywords), name) != std::end(keywords) ||
           is_macro(name) || std::find(classes.begin(), classes.end(), name) != classes.end();
}

std::string cpp_name(const MethodDescriptor& method) {
    const ServiceDescriptor& service = *method.service();
    if (!is_taken(method.name(), service)) return method.name();
    std::string name = method.name() + "_";
    for (int i = 2; service.FindMethodByName(name) || is_taken(name, service); ++i) {
        name = method.name() + "_" + std::to_string(i);
    }
    return name;
}

const MethodOptions& options_of(const MethodDescriptor& method) {
    return method.options().GetExtension(weft::detail::proto_options::method);
}

FieldOptions::Merge merge_of(const FieldDescriptor& field) {
    return field.options().GetExtension(weft::detail::proto_options::field).merge();
}

const std::string& merge_header_of(const FileDescriptor& file) {
    return file.options().GetExtension(weft::detail::proto_options::file).merge_header();
}

static bool is_collective(const MethodDescriptor& method) {
    return options_of(method).collective();
}

bool is_merged(const MethodDescriptor& method) {
    return is_collective(method) && options_of(method).group().merge();
}

using Predicate = bool (*)(const MethodDescriptor&);

static bool has(const ServiceDescriptor& service, Predicate is_one) {
    for (int i = 0; i < service.method_count(); ++i) {
        if (is_one(*service.method(i))) return true;
    }
    return false;
}

static bool has(const FileDescriptor& file, Predicate is_one) {
    for (int i = 0; i < file.service_count(); ++i) {
        if (has(*file.service(i), is_one)) return true;
    }
    return false;
}

bool has_collective(const ServiceDescriptor& service) { return has(service, is_collective); }
bool has_collective(const FileDescriptor& file) { return has(file, is_collective); }
bool has_merged(const ServiceDescriptor& service) { return has(service, is_merged); }
bool has_merged(const FileDescriptor& file) { return has(file, is_merged); }

}  // namespace weft::plugin
