// protoc-gen-weft: generates services and clients for weft from a .proto.
//
//     protoc --cpp_out=DIR --weft_out=DIR --plugin=protoc-gen-weft store.proto
#include <google/protobuf/compiler/plugin.h>

#include "protoc-gen-weft/plugin.h"

int main(int argc, char** argv) {
    const weft::plugin::WeftGenerator generator;
    return google::protobuf::compiler::PluginMain(argc, argv, &generator);
}
