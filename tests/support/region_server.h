// A server that exposes memory of its own, not from Runtime::allocate().
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <weft/runtime.h>

namespace weft::test {

struct RegionServer : Service {
    static constexpr MethodId get_ref{"test.RegionServer/GetRef"};  // Its reply is the reference.

    RegionServer(std::size_t bytes, std::byte filled_with) : memory(bytes, filled_with) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(get_ref, [this](Call call) {
            std::array<std::byte, RegionRef::wire_bytes> ref;
            region.ref().encode(ref);
            call.reply(ref);
        });
    }
    Status start(Runtime& runtime, const std::string& uri, Access access) {
        Result<Region> exposed = runtime.expose(Buffer::adopt(memory, nullptr), {.access = access});
        if (!exposed) return exposed.status();
        region = *std::move(exposed);
        return runtime.serve(*this, uri);
    }
    std::vector<std::byte> memory;
    Region region;
};

}  // namespace weft::test
