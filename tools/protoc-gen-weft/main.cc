// protoc-gen-weft: services and clients for weft out of a .proto.
//
//     protoc --cpp_out=DIR --weft_out=DIR --plugin=protoc-gen-weft store.proto
//
// One header and one source per file, also when it has no service, so that a build can name its
// outputs beforehand.
#include <memory>

#include <google/protobuf/compiler/code_generator.h>
#include <google/protobuf/compiler/plugin.h>
#include <google/protobuf/io/printer.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include "protoc-gen-weft/generate.h"
#include "protoc-gen-weft/names.h"
#include "protoc-gen-weft/rules.h"

namespace {

using namespace google::protobuf;

class WeftGenerator final : public compiler::CodeGenerator {
  public:
    bool Generate(const FileDescriptor* file, const std::string& parameter,
                  compiler::GeneratorContext* context, std::string* error) const override {
        if (!parameter.empty()) {
            *error = "protoc-gen-weft takes no parameters, got \"" + parameter + "\"";
            return false;
        }
        const std::vector<std::string> problems = weft::plugin::find_problems(*file);
        if (!problems.empty()) {
            // Each on a line of its own, as protoc's own errors, so that editors find the place.
            *error = file->name() + " can't be generated:";
            for (const std::string& problem : problems) *error += "\n" + problem;
            return false;
        }
        print(*file, *context, ".weft.h", weft::plugin::print_header);
        print(*file, *context, ".weft.cc", weft::plugin::print_source);
        return true;
    }

    std::uint64_t GetSupportedFeatures() const override { return FEATURE_PROTO3_OPTIONAL; }

  private:
    static void print(const FileDescriptor& file, compiler::GeneratorContext& context,
                      const char* extension, void (*what)(const FileDescriptor&, io::Printer&)) {
        const std::unique_ptr<io::ZeroCopyOutputStream> stream(
            context.Open(weft::plugin::stem_of(file) + extension));
        io::Printer printer(stream.get(), '$');
        what(file, printer);
    }
};

}  // namespace

int main(int argc, char** argv) {
    const WeftGenerator generator;
    return compiler::PluginMain(argc, argv, &generator);
}
