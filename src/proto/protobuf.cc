#include <weft/protobuf.h>
#include <weft/protobuf_merge.h>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <array>
#include <string>

#include "core/context.h"
#include "rpc/server.h"

namespace weft {

struct CallAccess {
    static rpc::Server& server(const Call& call) { return *call.server_; }
    static rpc::ServerCall& record(const Call& call) { return *call.call_; }
};

void to_proto(const RegionRef& ref, BulkRef* into) {
    std::string& desc = *into->mutable_desc();
    desc.resize(RegionRef::wire_bytes);
    ref.encode(std::span<std::byte, RegionRef::wire_bytes>(
        reinterpret_cast<std::byte*>(desc.data()), RegionRef::wire_bytes));
}

Result<RegionRef> from_proto(const BulkRef& ref) { return RegionRef::decode(as_bytes(ref.desc())); }

namespace detail {

std::size_t parsed_bytes_max() { return core::Context::parsed_bytes_max(); }

std::size_t hold_measured(const Layout& layout, const Call& call, std::size_t* hidden) {
    rpc::Server& server = CallAccess::server(call);
    rpc::ServerCall& record = CallAccess::record(call);
    const std::size_t measured =
        measure(layout, record.request, server.parsed_room(record), hidden);
    if (measured != too_large) server.hold_parsed(record, measured);
    return measured;
}

static std::string would_take(std::string_view what, std::string_view type, std::size_t bytes,
                              std::size_t most, std::string_view of) {
    return std::string(what) + ", " + std::string(type) + " in " + std::to_string(bytes) +
           " bytes, would take more than " + std::to_string(most) +
           " bytes of memory as a message, which are left of " + std::string(of) +
           " parsed_bytes_max (WEFT_PARSED_BYTES): send less in one message, or pass large data by "
           "weft.BulkRef";
}

Status bad_request(std::string_view type, const Call& call, bool is_too_large) {
    if (!is_too_large) {
        return rejected(Code::invalid_argument, "the request is not a valid " + std::string(type));
    }
    const std::size_t room = CallAccess::server(call).parsed_room(CallAccess::record(call));
    return rejected(Code::resource_exhausted,
                    would_take("the request", type, call.request().size(), room,
                               "its client's share of the server's"));
}

Status large_reply(std::string_view type, std::size_t bytes, std::size_t most) {
    return fail(Code::resource_exhausted,
                would_take("the reply", type, bytes, most, "one message's share of the receiver's"))
        .with_effect(Effect::applied)
        .with_stage(Stage::executing);
}

Status bad_reply(std::string_view type, std::size_t bytes, bool is_too_large) {
    if (is_too_large) return large_reply(type, bytes, parsed_bytes_max() / 2);
    return fail(Code::internal, "the reply is not a valid " + std::string(type))
        .with_effect(Effect::applied)
        .with_stage(Stage::executing);
}

Status not_served(const MethodId& method) {
    return rejected(Code::unimplemented,
                    std::string(method.name) + " is not implemented by this server");
}

std::atomic<unsigned> simulations{0};

void write_sorted(const google::protobuf::MessageLite& message, std::byte* to) {
    google::protobuf::io::ArrayOutputStream bytes(to, message.GetCachedSize());
    google::protobuf::io::CodedOutputStream out(&bytes);
    out.SetSerializationDeterministic(true);
    message.SerializeWithCachedSizes(&out);
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
