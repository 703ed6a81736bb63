#include <weft/protobuf.h>
#include <weft/protobuf_merge.h>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>

#include <array>
#include <climits>
#include <string>
#include <vector>

#include "base/assert.h"
#include "core/context.h"
#include "rpc/server.h"

namespace weft {

struct CallAccess {
    static rpc::Server& server(const Call& call) {
        WEFT_DCHECK(call.server_);
        return *call.server_;
    }
    // Requires: the call was not answered.
    static rpc::ServerCall& record(const Call& call) {
        WEFT_DCHECK(call.call_);
        return *call.call_;
    }
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

static std::string too_large_text(std::string_view what, std::string_view type, std::size_t bytes,
                                  std::size_t most, std::string_view of) {
    return std::string(what) + ", " + std::string(type) + " in " + std::to_string(bytes) +
           " bytes, would take more than " + std::to_string(most) +
           " bytes of memory as a message, which are left of " + std::string(of) +
           " parsed_bytes_max (WEFT_PARSED_BYTES): send less in one message, or pass large data by "
           "weft.BulkRef";
}

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// The path of the first required field without a value, from this message on: "items[3].name". Not
// by InitializationErrorString(), which makes a text of every such field: a peer's few bytes would
// take much memory.
static std::string missing_field(const Message& in) {
    const auto& type = *in.GetDescriptor();
    const auto& fields = *in.GetReflection();
    for (int i = 0; i < type.field_count(); ++i) {
        const FieldDescriptor& field = *type.field(i);
        if (field.is_required() && !fields.HasField(in, &field)) return field.name();
    }
    std::vector<const FieldDescriptor*> present;
    fields.ListFields(in, &present);
    for (const FieldDescriptor* field : present) {
        if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
        const std::string name =
            field->is_extension() ? "(" + field->full_name() + ")" : field->name();
        const int size = field->is_repeated() ? fields.FieldSize(in, field) : 1;
        for (int i = 0; i < size; ++i) {
            const Message& inner = field->is_repeated() ? fields.GetRepeatedMessage(in, field, i)
                                                        : fields.GetMessage(in, field);
            if (inner.IsInitialized()) continue;
            const std::string at = field->is_repeated() ? "[" + std::to_string(i) + "]" : "";
            return name + at + "." + missing_field(inner);
        }
    }
    return "";
}

// Why parse() refused the body. `into` is the message that it left.
static std::string not_valid(std::string_view what, Message& into, ByteView body) {
    WEFT_ASSERT(body.size() <= INT_MAX);
    std::string text(what);
    // Only types with required fields are parsed again, to distinguish a missing field from an
    // unreadable body.
    if (!into.IsInitialized() &&
        into.ParsePartialFromArray(body.data(), static_cast<int>(body.size()))) {
        return text + ", " + into.GetTypeName() + ", has no value in its required field '" +
               missing_field(into) + "', which its sender must set";
    }
    return text + " is not a valid " + into.GetTypeName();
}

Status bad_request(Message& into, const Call& call, bool is_too_large) {
    const ByteView body = call.request();
    if (!is_too_large) {
        return rejected(Code::invalid_argument, not_valid("the request", into, body));
    }
    const std::size_t room = CallAccess::server(call).parsed_room(CallAccess::record(call));
    return rejected(Code::resource_exhausted,
                    too_large_text("the request", into.GetTypeName(), body.size(), room,
                                   "its client's share of the server's"));
}

Status large_reply(std::string_view type, std::size_t bytes, std::size_t most) {
    return fail(Code::resource_exhausted, too_large_text("the reply", type, bytes, most,
                                                         "one message's share of the receiver's"))
        .with_effect(Effect::applied)
        .with_stage(Stage::executing);
}

Status bad_reply(Message& into, ByteView body, bool is_too_large) {
    if (is_too_large) {
        return large_reply(into.GetTypeName(), body.size(), parsed_bytes_max() / 2);
    }
    return fail(Code::internal, not_valid("the reply", into, body))
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
    WEFT_ASSERT(out.ByteCount() == message.GetCachedSize());
}

}  // namespace detail

namespace merging {

// A failure to merge replies: the handlers of these ranks have run.
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
