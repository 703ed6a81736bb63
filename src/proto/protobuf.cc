#include <weft/protobuf.h>
#include <weft/protobuf_merge.h>

#include <array>
#include <string>

namespace weft {

void to_proto(const RegionRef& ref, BulkRef* into) {
    std::string& desc = *into->mutable_desc();
    desc.resize(RegionRef::wire_bytes);
    ref.encode(std::span<std::byte, RegionRef::wire_bytes>(
        reinterpret_cast<std::byte*>(desc.data()), RegionRef::wire_bytes));
}

Result<RegionRef> from_proto(const BulkRef& ref) { return RegionRef::decode(as_bytes(ref.desc())); }

namespace detail {

Status bad_request(std::string_view type) {
    return rejected(Code::invalid_argument, "the request is not a valid " + std::string(type));
}

Status bad_reply(std::string_view type) {
    return fail(Code::internal, "the reply is not a valid " + std::string(type))
        .with_effect(Effect::applied)
        .with_stage(Stage::executing);
}

Status not_served(const MethodId& method) {
    return rejected(Code::unimplemented,
                    std::string(method.name) + " is not implemented by this server");
}

}  // namespace detail

namespace merging {

// Of ranks whose handlers have run.
static Status not_merged(Code code, std::string text) {
    return fail(code, std::move(text)).with_effect(Effect::applied).with_stage(Stage::executing);
}

Status too_large(std::string_view type) {
    return not_merged(Code::resource_exhausted,
                      "replies are too large to be merged into one " + std::string(type));
}

Status thrown(std::string_view type) {
    return not_merged(Code::internal,
                      "merging replies into one " + std::string(type) + " threw an exception");
}

}  // namespace merging
}  // namespace weft
