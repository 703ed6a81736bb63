#include "protoc-gen-weft/plugin.h"

#include <memory>
#include <vector>

#include <google/protobuf/io/printer.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include "protoc-gen-weft/generate_stubs.h"
#include "protoc-gen-weft/names.h"
#include "protoc-gen-weft/rules.h"

namespace weft::plugin {

using namespace google::protobuf;

static void print(const FileDescriptor& file, compiler::GeneratorContext& context,
                  const char* extension, void (*what)(const FileDescriptor&, io::Printer&)) {
    const std::unique_ptr<io::ZeroCopyOutputStream> stream(context.Open(stem_of(file) + extension));
    io::Printer printer(stream.get(), '$');
    what(file, printer);
}

bool WeftGenerator::Generate(const FileDescriptor* file, const std::string& parameter,
                             compiler::GeneratorContext* context, std::string* error) const {
    if (!parameter.empty()) {
        *error = "protoc-gen-weft takes no parameters, got \"" + parameter + "\"";
        return false;
    }
    const std::vector<std::string> problems = find_problems(*file);
    if (!problems.empty()) {
        // One problem a line, like protoc's own errors, so that editors find the place.
        *error = file->name() + " can't be generated:";
        for (const std::string& problem : problems) *error += "\n" + problem;
        return false;
    }
    print(*file, *context, ".weft.h", print_header);
    print(*file, *context, ".weft.cc", print_source);
    return true;
}

}  // namespace weft::plugin
