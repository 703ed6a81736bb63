// The references to memory in messages: their 48 bytes, and the protobuf around them.
#include <google/protobuf/stubs/logging.h>

#include <weft/protobuf.h>

#include "echo.pb.h"
#include "fuzz/fuzz.h"

using namespace weft;
using fuzz::must;

static void check_reference(ByteView bytes) {
    const Result<RegionRef> ref = RegionRef::decode(bytes);
    if (!ref) {
        must(ref.status().code() == Code::permission_denied, "a forgery is refused as one");
        return;
    }
    must(ref->offset + ref->length >= ref->offset, "a range does not wrap");
    must(static_cast<unsigned>(ref->access) <= 3, "a right is valid");
    std::array<std::byte, RegionRef::wire_bytes> again;
    ref->encode(again);
    must(std::ranges::equal(again, bytes), "an accepted reference is encoded as it was decoded");
    BulkRef proto;
    to_proto(*ref, &proto);
    const Result<RegionRef> twice = from_proto(proto);
    must(twice.ok(), "a reference goes through protobuf");
    twice->encode(again);
    must(std::ranges::equal(again, bytes), "a reference survives protobuf");
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const google::protobuf::LogSilencer no_complaints;  // For text that is not UTF-8.
    fuzz::Input input(data, size);
    const std::uint8_t which = input.byte();
    const std::vector<std::byte> bytes = fuzz::exact(input.rest());
    if (which % 3 == 0) {
        check_reference(bytes);
        return 0;
    }
    echo::v1::EchoRequest request;
    BulkRef bare;
    const int length = static_cast<int>(bytes.size());
    const BulkRef* proto = nullptr;
    if (which % 3 == 1 && bare.ParseFromArray(bytes.data(), length)) proto = &bare;
    if (which % 3 == 2 && request.ParseFromArray(bytes.data(), length)) proto = &request.source();
    if (!proto) return 0;
    must(from_proto(*proto).ok() == RegionRef::decode(as_bytes(proto->desc())).ok(),
         "protobuf adds no check of its own");
    check_reference(as_bytes(proto->desc()));
    return 0;
}
