// Comments of a .proto in generated code.
#include <string>

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/printer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "protoc-gen-weft/generate.h"
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
        at.add_path(step);  // The first method of the first service.
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

TEST_CASE("a comment of a .proto goes into the code") {
    CHECK(header_of(" Reads.\n\n\tAll of it.\n")
              .find("    // Reads.\n    //\n    //\tAll of it.\n    virtual ") !=
          std::string::npos);
}

TEST_CASE("no comment of a .proto takes in code or turns into it") {
    // In front of a line break the backslash would make the next line a comment, too.
    for (const char* end : {"\\", "\\ ", "\\\t", "\\\r"}) {
        const std::string header = header_of(std::string(" C:") + end + "\n");
        CHECK(header.find("    // C:\\ //\n    virtual ") != std::string::npos);
    }
    // Where clang ends the line and g++ does not.
    CHECK(header_of(" one\rint two;\n").find("    // one int two;\n") != std::string::npos);
}
