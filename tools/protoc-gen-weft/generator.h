// What protoc runs: the rules, then the text.
#pragma once

#include <cstdint>
#include <string>

#include <google/protobuf/compiler/code_generator.h>

namespace weft::plugin {

// One header and one source per file, also when it has no service, so that a build can name its
// outputs beforehand.
class WeftGenerator final : public google::protobuf::compiler::CodeGenerator {
  public:
    bool Generate(const google::protobuf::FileDescriptor* file, const std::string& parameter,
                  google::protobuf::compiler::GeneratorContext* context,
                  std::string* error) const override;
    std::uint64_t GetSupportedFeatures() const override { return FEATURE_PROTO3_OPTIONAL; }
};

}  // namespace weft::plugin
