// One source, compiled into two plugins: all names, types and closures of one are those of the
// other. They differ by PLUGIN_NAME, and by PLUGIN_PACKAGE, of the .proto, which protobuf does not
// take twice.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <weft/await.h>
#include <weft/group_view.h>
#include <weft/runtime.h>

#include "plugin.h"
#include PLUGIN_HEADER

using namespace weft;

namespace {

constexpr const char* own_name = PLUGIN_NAME;

struct Ledger final : PLUGIN_PACKAGE::LedgerService {
    Runtime* runtime = nullptr;

    Task<Status> Sum(Call& call, const PLUGIN_PACKAGE::SumRequest& in,
                     PLUGIN_PACKAGE::SumReply& out) override {
        const Result<RegionRef> from = from_proto(in.from());
        if (!from) co_return from.status();
        const Result<Buffer> here = runtime->allocate(from->length);
        if (!here) co_return here.status();
        if (Status status = co_await get(call, *from, 0, *here); !status.ok()) co_return status;
        std::uint64_t sum = 0;
        for (const std::byte byte : here->bytes()) sum += std::to_integer<std::uint64_t>(byte);
        out.set_sum(sum);
        co_return Status();
    }
};

}  // namespace

// Not in an unnamed namespace: what is made of it has the same symbols in both plugins.
struct Names final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        const std::string prefix = "of ";
        registrar.add(MethodId("plugins.Names/Get"),
                      [prefix](Call call) { call.reply(as_bytes(prefix + own_name)); });
    }
};

namespace {

struct Plugin {
    Ledger ledger;
    Names names;
    Runtime server = Runtime::create().value();
    Runtime client = Runtime::create().value();
};
std::unique_ptr<Plugin> plugin;
std::string wrong;

const char* fail(std::string text) {
    wrong = std::string("plugin ") + own_name + ": " + std::move(text);
    return wrong.c_str();
}

}  // namespace

Task<std::string> name_of(Channel channel) {
    const Result<std::vector<std::byte>> reply =
        co_await call(channel, MethodId("plugins.Names/Get"), {}, {.timeout = 5s});
    if (!reply) co_return reply.status().to_string();
    co_return std::string(reinterpret_cast<const char*>(reply->data()), reply->size());
}

Task<Result<std::uint64_t>> sum(Channel channel, std::string other, RegionRef ref) {
    PLUGIN_PACKAGE::SumRequest request;
    // By reflection: the object is one of whichever copy of weft registered the type.
    google::protobuf::Message* from = request.GetReflection()->MutableMessage(
        &request, request.GetDescriptor()->FindFieldByName("from"));
    BulkRef bulk;
    to_proto(ref, &bulk);
    if (!from->ParseFromString(bulk.SerializeAsString())) co_return Status(Code::internal, "parse");
    if (other == own_name) {
        Result<PLUGIN_PACKAGE::SumReply> reply =
            co_await PLUGIN_PACKAGE::LedgerClient(channel).Sum(request);
        if (!reply) co_return reply.status();
        co_return reply->sum();
    }
    // The messages of the other plugin differ by their package only.
    const std::string method = "plugin_" + other + ".Ledger/Sum";
    const std::string body = request.SerializeAsString();
    const Result<std::vector<std::byte>> bytes =
        co_await call(channel, MethodId(method), as_bytes(body), {.timeout = 5s});
    if (!bytes) co_return bytes.status();
    PLUGIN_PACKAGE::SumReply reply;
    if (!reply.ParseFromArray(bytes->data(), static_cast<int>(bytes->size()))) {
        co_return Status(Code::internal, "parse");
    }
    co_return reply.sum();
}

const char* plugin_start(const char* name, char* tcp_uri, std::size_t bytes) {
    plugin = std::make_unique<Plugin>();
    plugin->ledger.runtime = &plugin->server;
    for (Service* service :
         {static_cast<Service*>(&plugin->ledger), static_cast<Service*>(&plugin->names)}) {
        const Status status = plugin->server.add(*service);
        if (!status.ok()) return fail(status.to_string());
    }
    for (const std::string& uri : {std::string("sm://") + name, std::string("tcp://127.0.0.1:0")}) {
        const Status status = plugin->server.listen(uri);
        if (!status.ok()) return fail(status.to_string());
    }
    std::snprintf(tcp_uri, bytes, "%s", plugin->server.addresses().back().c_str());
    return nullptr;
}

const char* plugin_call(const char* uri, const char* other) {
    const Result<Channel> channel = plugin->client.connect(uri);
    if (!channel) return fail(channel.status().to_string());
    const std::string name = plugin->client.block_on(name_of(*channel));
    if (name != std::string("of ") + other) return fail(std::string(uri) + " is " + name);

    const Buffer memory = plugin->client.allocate(100'000).value();
    for (std::size_t i = 0; i < memory.size(); ++i) memory.data()[i] = std::byte(i % 100);
    const Region region = plugin->client.expose(memory, {.access = Access::read}).value();
    const Result<std::uint64_t> total = plugin->client.block_on(sum(*channel, other, region.ref()));
    if (!total) return fail(total.status().to_string());
    if (*total != 4'950'000) return fail("sum " + std::to_string(*total));
    return nullptr;
}

const char* plugin_reflect() {
    const google::protobuf::MethodDescriptor* method =
        PLUGIN_PACKAGE::SumRequest::descriptor()->file()->service(0)->method(0);
    const auto& options = method->options().GetExtension(weft::detail::proto_options::method);
    if (options.timeout_ms() != 5000 || !options.idempotent()) return fail("options");
    if (options.ShortDebugString() != "timeout_ms: 5000 idempotent: true") {
        return fail(options.ShortDebugString());
    }
    if (BulkRef::descriptor()->full_name() != "weft.BulkRef") return fail("descriptor");
    const std::string json =
        R"({"name":"jobs","epoch":3,"members":[{"rank":0,"uris":["sm://job-0"]}]})";
    const Result<GroupView> view = GroupView::parse(json);
    if (!view) return fail(view.status().to_string());
    if (view->name() != "jobs" || view->epoch() != 3) return fail(view->to_json());
    return nullptr;
}

void plugin_stop() { plugin.reset(); }
