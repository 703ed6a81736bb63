// The generator that protoc runs: checks the rules, then prints the code.
#pragma once

#include <cstdint>
#include <string>

#include <google/protobuf/compiler/code_generator.h>

namespace weft::plugin {

// Writes one header and one source per file, also for a file without services, so that a build
// knows the outputs in advance.
class WeftGenerator final : public google::protobuf::compiler::CodeGenerator {
  public:
    bool Generate(const google::protobuf::FileDescriptor* file, const std::string& parameter,
                  google::protobuf::compiler::GeneratorContext* context,
                  std::string* error) const override;
    std::uint64_t GetSupportedFeatures() const override { return FEATURE_PROTO3_OPTIONAL; }
};

}  // namespace weft::plugin
