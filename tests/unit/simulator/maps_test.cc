// Messages with map fields in a simulation: protobuf keeps their entries in an order of its own,
// which differs from one message to the next.
#include <weft/sim.h>

#include <cstdint>
#include <memory>
#include <string>

#include <weft/protobuf.h>

#include "sizes.weft.h"
#include "support/catch.h"

namespace simulation_maps_test {

using namespace weft;
using sizes::v1::Many;
using weft::sim::Simulation;

constexpr MethodId bytes_method("maps.Maps/Bytes");
const ProtoMethod<Many, Many> bytes_of{.id = bytes_method};
const ProtoMethod<Many, Many> echo{.id = MethodId("maps.Maps/Echo")};

Many with_maps(int entries) {
    Many message;
    for (int i = 0; i < entries; ++i) {
        const std::string text = std::to_string(i * 7919 % 1009);
        (*message.mutable_pairs())[i * 7919 % 1009] = i;
        (*message.mutable_text_pairs())[text] = text;
        (*(*message.mutable_wide_pairs())[i % 8].mutable_g())[text] = text;
    }
    return message;
}

struct Maps final : Service {
    std::string& request;
    explicit Maps(std::string& into) : request(into) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(bytes_method, [this](Call call) {
            request = as_text(call.request());
            call.reply({});
        });
        serve<&Maps::Echo>(registrar, *this, echo);
    }
    Status Echo(Call&, const Many& in, Many& out) {
        out = with_maps(in.number());
        return {};
    }
};

// The bytes that one run has sent.
struct Sent {
    std::string request, reply;
    std::uint64_t trace = 0;
    bool operator==(const Sent&) const = default;
};

Sent run(int entries) {
    Sent sent;
    Simulation simulation(1);
    simulation.add("server", [&](Runtime& runtime) {
        auto service = std::make_shared<Maps>(sent.request);
        REQUIRE(runtime.serve(*service, "sim://server").ok());
        return service;
    });
    simulation.add("client", [](Runtime&) { return nullptr; });
    const Channel channel = simulation.runtime("client")->connect("sim://server").value();
    int done = 0;
    call(channel, bytes_of, with_maps(entries), {}, [&](const Status& status, const Many&) {
        CHECK(status.ok());
        ++done;
    });
    Many count;
    count.set_number(entries);
    channel.call(echo.id, as_bytes(count.SerializeAsString()), {},
                 [&](const Status& status, ByteView reply) {
                     CHECK(status.ok());
                     sent.reply = as_text(reply);
                     ++done;
                 });
    REQUIRE(simulation.run_until([&] { return done == 2; }, 10s));
    sent.trace = simulation.trace_hash();
    return sent;
}

TEST_CASE("simulation: messages with map fields are the same bytes in each run") {
    const int entries = GENERATE(3, 100);
    const Sent first = run(entries);
    Many sent;
    REQUIRE(sent.ParseFromString(first.request));
    CHECK(sent.pairs_size() == entries);
    REQUIRE(sent.ParseFromString(first.reply));
    CHECK(sent.text_pairs_size() == entries);
    for (int i = 0; i < 5; ++i) CHECK(run(entries) == first);
}

}  // namespace simulation_maps_test
