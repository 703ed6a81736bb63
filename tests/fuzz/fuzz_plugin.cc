// protoc-gen-weft on any input from protoc: the text of a .proto, or a whole request for code.
// Files without problems become code in which no name and no comment leaves its place.
#include <memory>
#include <string>

#include <google/protobuf/compiler/parser.h>
#include <google/protobuf/compiler/plugin.h>
#include <google/protobuf/compiler/plugin.pb.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <weft/bulk.pb.h>
#include <weft/options.pb.h>

#include "fuzz/fuzz.h"
#include "protoc-gen-weft/plugin.h"

using namespace weft;
using namespace google::protobuf;
using fuzz::must;

namespace {

// Lines are long and files many, but bounded.
constexpr std::size_t input_bytes_max = 16 << 10;

struct Silent final : DescriptorPool::ErrorCollector {
    void AddError(const std::string&, const std::string&, const Message*, ErrorLocation,
                  const std::string&) override {}
};
struct SilentParser final : io::ErrorCollector {
    void AddError(int, io::ColumnNumber, const std::string&) override {}
};

void check_code(const std::string& code) {
    std::string_view rest = code;
    int braces = 0;
    while (!rest.empty()) {
        const std::size_t end = rest.find('\n');
        must(end != rest.npos, "code ends with its line");
        const std::string_view line = rest.substr(0, end);
        rest = rest.substr(end + 1);
        const std::size_t last = line.find_last_not_of(" \t");
        must(last == line.npos || line[last] != '\\', "no line continues in the next");
        must(std::ranges::none_of(line, [](char c) { return c != '\t' && c > 0 && c < ' '; }),
             "a line is one, also for clang, which ends it with a lone \\r");
        const std::string_view words = line.substr(0, line.find("//"));
        must(words.find('$') == words.npos, "every word is filled in");
        braces += static_cast<int>(std::ranges::count(words, '{'));
        braces -= static_cast<int>(std::ranges::count(words, '}'));
        must(braces >= 0, "a closed brace was opened");
    }
    must(braces == 0, "an opened brace is closed");
}

void generate(const compiler::CodeGeneratorRequest& request) {
    compiler::CodeGeneratorResponse response;
    std::string error;
    if (!compiler::GenerateCode(request, plugin::WeftGenerator(), &response, &error)) return;
    if (response.has_error()) {
        must(!response.error().empty(), "a refusal has a text");
        must(response.file_size() == 0 || request.file_to_generate_size() > 1, "or there is code");
        return;
    }
    must(response.file_size() == 2 * request.file_to_generate_size(), "a header and a source each");
    for (const auto& file : response.file()) check_code(file.content());
}

// The request that protoc makes from one .proto.
void generate_from(const std::string& text) {
    io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
    SilentParser silent;
    io::Tokenizer tokenizer(&stream, &silent);
    compiler::Parser parser;
    parser.RecordErrorsTo(&silent);
    compiler::CodeGeneratorRequest request;
    weft::MethodOptions::descriptor()->file()->dependency(0)->CopyTo(request.add_proto_file());
    weft::MethodOptions::descriptor()->file()->CopyTo(request.add_proto_file());
    BulkRef::descriptor()->file()->CopyTo(request.add_proto_file());
    FileDescriptorProto& file = *request.add_proto_file();
    if (!parser.Parse(&tokenizer, &file)) return;
    file.set_name("fuzz.proto");
    request.add_file_to_generate("fuzz.proto");
    generate(request);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const LogSilencer no_complaints;
    if (size > input_bytes_max) return 0;
    fuzz::Input input(data, size);
    const bool is_text = input.byte() % 4 != 0;
    const std::string bytes(as_text(input.rest()));
    if (is_text) {
        generate_from(bytes);
        return 0;
    }
    compiler::CodeGeneratorRequest request;
    if (request.ParseFromString(bytes)) generate(request);
    return 0;
}
