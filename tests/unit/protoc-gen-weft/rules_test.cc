// Cases that expect_refusal.sh can't produce: two names with the same 64-bit hash, and options of a
// later version.
#include <google/protobuf/descriptor.pb.h>

#include <weft/options.pb.h>

#include "protoc-gen-weft/rules.h"
#include "support/catch.h"

using namespace google::protobuf;
using weft::plugin::find_problems;

namespace {

void add_service(FileDescriptorProto& file, const char* service,
                 std::initializer_list<const char*> methods) {
    if (file.message_type_size() == 0 && file.dependency_size() == 0) {
        file.add_message_type()->set_name("Empty");
    }
    ServiceDescriptorProto& added = *file.add_service();
    added.set_name(service);
    for (const char* name : methods) {
        MethodDescriptorProto& method = *added.add_method();
        method.set_name(name);
        method.set_input_type(".p.Empty");
        method.set_output_type(".p.Empty");
    }
}

FileDescriptorProto file_named(const char* name) {
    FileDescriptorProto file;
    file.set_name(name);
    file.set_package("p");
    return file;
}

std::uint64_t hash_of_last_letter(std::string_view name) {
    return static_cast<std::uint64_t>(name.back());
}

}  // namespace

TEST_CASE("methods of one file that share a hash are refused") {
    DescriptorPool pool;
    FileDescriptorProto proto = file_named("a.proto");
    add_service(proto, "First", {"Read", "Write"});
    add_service(proto, "Second", {"Load"});
    const FileDescriptor* file = pool.BuildFile(proto);
    REQUIRE(file);
    CHECK(find_problems(*file).empty());
    const auto problems = find_problems(*file, hash_of_last_letter);
    REQUIRE(problems.size() == 1);
    CHECK(problems[0] ==
          "a.proto: p.Second/Load: has the same hash as p.First/Read; rename one of them");
}

TEST_CASE("methods of imported files are checked for equal hashes, too") {
    DescriptorPool pool;
    FileDescriptorProto first = file_named("a.proto"), second = file_named("b.proto");
    add_service(first, "First", {"Read"});
    second.add_dependency("a.proto");
    add_service(second, "Second", {"Load"});
    REQUIRE(pool.BuildFile(first));
    const FileDescriptor* file = pool.BuildFile(second);
    REQUIRE(file);
    CHECK(find_problems(*file).empty());
    const auto problems = find_problems(*file, hash_of_last_letter);
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].find("b.proto: p.Second/Load") == 0);
}

TEST_CASE("options that only a later plugin supports are refused") {
    FileDescriptorProto proto = file_named("a.proto");
    add_service(proto, "First", {"Read"});
    FieldDescriptorProto& field = *proto.mutable_message_type(0)->add_field();
    field.set_name("sum");
    field.set_number(1);
    field.set_label(FieldDescriptorProto::LABEL_OPTIONAL);
    field.set_type(FieldDescriptorProto::TYPE_UINT32);
    field.mutable_options()
        ->MutableExtension(weft::detail::proto_options::field)
        ->set_merge(static_cast<weft::FieldOptions::Merge>(42));
    weft::MethodOptions& options =
        *proto.mutable_service(0)->mutable_method(0)->mutable_options()->MutableExtension(
            weft::detail::proto_options::method);
    options.set_collective(true);
    options.mutable_group()->set_policy(static_cast<weft::GroupOptions::Policy>(43));
    options.mutable_group()->set_topology(static_cast<weft::GroupOptions::Topology>(44));
    DescriptorPool pool(DescriptorPool::generated_pool());
    const FileDescriptor* file = pool.BuildFile(proto);
    REQUIRE(file);
    const std::vector<std::string> expected = {
        "a.proto: p.Empty.sum: merge = 42 is for a later protoc-gen-weft, not for uint32",
        "a.proto: p.First/Read: policy: 43 needs a later protoc-gen-weft",
        "a.proto: p.First/Read: topology: 44 needs a later protoc-gen-weft"};
    CHECK(find_problems(*file) == expected);
}
