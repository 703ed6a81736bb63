// Calls in bytes, without protobuf, compiled with the flags of pkg-config.
#include <cstdio>
#include <string>

#include <weft/await.h>
#include <weft/runtime.h>

using namespace weft;

struct Echo final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(MethodId("raw.Raw/Echo"), [](Call call) { call.reply(call.request()); });
    }
};

static Task<std::string> echo(Channel channel, std::string text) {
    const Result<std::vector<std::byte>> reply =
        co_await call(channel, MethodId("raw.Raw/Echo"), as_bytes(text), {.timeout = 5s});
    if (!reply) co_return reply.status().to_string();
    co_return std::string(reinterpret_cast<const char*>(reply->data()), reply->size());
}

int main() {
    Echo service;
    Runtime server = Runtime::create().value();
    Runtime client = Runtime::create().value();
    if (!server.serve(service, "tcp://127.0.0.1:0").ok()) return 1;
    const Channel channel = client.connect(server.addresses().front()).value();
    std::printf("raw: %s\n", client.block_on(echo(channel, "hello")).c_str());
    return 0;
}
