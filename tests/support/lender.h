// A server that lends memory of its own, which is not of Runtime::allocate().
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <weft/runtime.h>

namespace weft::test {

struct Lender : Service {
    static constexpr MethodId lend{"test.Lender/Lend"};  // Its reply is the reference.

    Lender(std::size_t bytes, std::byte filled_with) : memory(bytes, filled_with) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(lend, [this](Call call) {
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
