// Messages of proto2 that are sent without a value in a required field.
#include "sizes.weft.h"
#include "support/echo.h"

namespace weft::proto_required_test {
namespace {

using sizes::v1::NeedingClient;
using sizes::v1::NeedingMethods;
using sizes::v1::Needs;
using test::SimRig;

struct Giver final : sizes::v1::NeedingService {
    Task<Status> Give(Call&, const Needs&, Needs& out) override {
        ++handled;
        out = reply;
        co_return Status();
    }
    Needs reply;
    int handled = 0;
};

struct Pair {
    Pair() { REQUIRE(server.add(giver).ok()); }
    // Calls with a callback and with co_await, which must give the same status.
    Status give(const Needs& in) {
        std::optional<Status> called, awaited;
        stub.Give(in, {}, [&](const Status& status, const Needs&) { called = status; });
        const auto ask = [&]() -> Task<void> { awaited = (co_await stub.Give(in)).status(); };
        client.spawn(ask);
        REQUIRE(rig.run_until([&] { return called && awaited; }));
        CHECK(called->text() == awaited->text());
        CHECK(called->code() == awaited->code());
        CHECK(called->effect() == awaited->effect());
        return *called;
    }
    Giver giver;
    SimRig rig;
    Runtime& server = rig.add("server");
    Runtime& client = rig.add("");
    const NeedingClient stub = NeedingClient(client.connect("sim://server").value());
};

Needs named(std::string_view name) {
    Needs needs;
    needs.set_name(std::string(name));
    return needs;
}

TEST_CASE("a request without a required field is refused with the field's name") {
    Pair pair;
    const auto refusal = [&](const Needs& in) {
        const Status status = pair.give(in);
        CHECK(status.code() == Code::invalid_argument);
        CHECK(status.effect() == Effect::none);
        return std::string(status.text());
    };
    CHECK(refusal(Needs()) ==
          "the request, sizes.v1.Needs, has no value in its required field "
          "'name', which its sender must set");
    Needs deep = named("a");
    deep.add_parts()->set_name("b");
    deep.add_parts()->set_name("c");
    deep.mutable_parts(1)->add_parts()->set_number(7);
    CHECK(refusal(deep).find("'parts[1].parts[0].name'") != std::string::npos);
    Needs keyed = named("a");
    (*keyed.mutable_by_key())["key"].set_number(1);
    CHECK(refusal(keyed).find("'by_key[0].value.name'") != std::string::npos);
    Needs large = named(std::string(100000, 'x'));
    large.add_parts();
    CHECK(refusal(large).find("'parts[0].name'") != std::string::npos);
    CHECK(pair.giver.handled == 0);
}

TEST_CASE("a reply without a required field is INTERNAL with the field's name") {
    Pair pair;
    for (const std::string& text : {std::string("x"), std::string(100000, 'x')}) {
        pair.giver.reply = named(text);
        CHECK(pair.give(named("a")).ok());
        pair.giver.reply.add_parts()->set_number(3);
        const Status status = pair.give(named("a"));
        CHECK(status.code() == Code::internal);
        CHECK(status.effect() == Effect::applied);
        CHECK(status.text() ==
              "the reply, sizes.v1.Needs, has no value in its required field "
              "'parts[0].name', which its sender must set");
    }
}

TEST_CASE("a truncated body is INVALID_ARGUMENT as such, and no required field is named") {
    Pair pair;
    std::optional<Status> outcome;
    pair.stub.Give(named("a"), {}, [](const Status& status, const Needs&) { return status.ok(); });
    const Channel channel = pair.client.connect("sim://server").value();
    channel.call(NeedingMethods::Give.id, as_bytes(std::string_view("\x0a\xff\xff\xff")), {},
                 [&](const Status& status, ByteView) { outcome = status; });
    REQUIRE(pair.rig.run_until([&] { return outcome.has_value(); }));
    CHECK(outcome->code() == Code::invalid_argument);
    CHECK(outcome->text() == "the request is not a valid sizes.v1.Needs");
}

}  // namespace
}  // namespace weft::proto_required_test
