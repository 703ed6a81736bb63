// Comments of a .proto in generated code.
#include <string>

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/printer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "protoc-gen-weft/generate_stubs.h"
#include "support/catch.h"

using namespace google::protobuf;

static std::string header_of(const std::string& comment) {
    FileDescriptorProto proto;
    proto.set_name("a.proto");
    proto.add_message_type()->set_name("Empty");
    ServiceDescriptorProto& service = *proto.add_service();
    service.set_name("First");
    MethodDescriptorProto& method = *service.add_method();
    method.set_name("Read");
    method.set_input_type(".Empty");
    method.set_output_type(".Empty");
    SourceCodeInfo::Location& at = *proto.mutable_source_code_info()->add_location();
    for (const int step : {6, 0, 2, 0})
        at.add_path(step);  // The path of the first method of the first service.
    for (const int place : {1, 0, 10}) at.add_span(place);
    at.set_leading_comments(comment);
    DescriptorPool pool;
    const FileDescriptor* file = pool.BuildFile(proto);
    REQUIRE(file);
    std::string text;
    io::StringOutputStream stream(&text);
    {
        io::Printer printer(&stream, '$');
        weft::plugin::print_header(*file, printer);
    }
    return text;
}

TEST_CASE("a comment of a .proto is copied into the generated code") {
    CHECK(header_of(" Reads.\n\n\tAll of it.\n")
              .find("    // Reads.\n    //\n    //\tAll of it.\n    virtual ") !=
          std::string::npos);
}

TEST_CASE("no comment of a .proto swallows generated code or becomes code") {
    // In front of a line break, the backslash would extend the comment to the next line.
    for (const char* end : {"\\", "\\ ", "\\\t", "\\\r"}) {
        const std::string header = header_of(std::string(" C:") + end + "\n");
        CHECK(header.find("    // C:\\ //\n    virtual ") != std::string::npos);
    }
    // At this character the line ends for clang and not for g++.
    CHECK(header_of(" one\rint two;\n").find("    // one int two;\n") != std::string::npos);
}
