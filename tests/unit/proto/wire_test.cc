// Stubs and skeletons with invalid, too many or missing bytes.
#include "support/echo.h"

using namespace weft;
using echo::v1::EchoClient;
using echo::v1::EchoMethods;
using echo::v1::EchoReply;
using echo::v1::EchoRequest;
using test::EchoPair;
using test::request_of;
using test::SimRig;

namespace {

constexpr std::string_view garbage = "\x0a\xff\xff\xff";  // A string longer than the message.

struct WireOutcome {
    int completions = 0;
    Status status;
    auto done() {
        return [this](const Status& with, const auto&) {
            ++completions;
            status = with;
        };
    }
    void wait(SimRig& rig) {
        CHECK(completions == 0);
        REQUIRE(rig.run_until([&] { return completions == 1; }));
    }
};

struct Babbler final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(EchoMethods::Now.id, [](Call call) { call.reply(as_bytes(garbage)); });
    }
};

Task<Status> ask_now(EchoClient stub) {
    Result<EchoReply> reply = co_await stub.Now(request_of("x"));
    co_return reply.status();
}

// Reports a size that protobuf can't write.
struct Enormous final : google::protobuf::MessageLite {
    std::string GetTypeName() const override { return "Enormous"; }
    MessageLite* New(google::protobuf::Arena*) const override { return nullptr; }
    void Clear() override {}
    bool IsInitialized() const override { return true; }
    void CheckTypeAndMergeFrom(const MessageLite&) override {}
    std::size_t ByteSizeLong() const override { return std::size_t{3} << 30; }
    int GetCachedSize() const override { return 0; }
    std::uint8_t* _InternalSerialize(std::uint8_t* to,
                                     google::protobuf::io::EpsCopyOutputStream*) const override {
        FAIL("written");
        return to;
    }
};

}  // namespace

TEST_CASE("a request that does not parse is refused before its handler runs") {
    EchoPair pair;
    for (MethodId called : {EchoMethods::Now.id, EchoMethods::Later.id}) {
        WireOutcome outcome;
        pair.channel.call(called, as_bytes(garbage), {}, outcome.done());
        outcome.wait(pair.rig);
        CHECK(outcome.status.code() == Code::invalid_argument);
        CHECK(outcome.status.effect() == Effect::none);
        CHECK(outcome.status.text() == "the request is not a valid echo.v1.EchoRequest");
    }
    CHECK(pair.service.handled == 0);
}

TEST_CASE("a reply that does not parse is INTERNAL, and its call was applied") {
    Babbler babbler;
    SimRig rig;
    Runtime& server = rig.add("server");
    Runtime& client = rig.add("");
    REQUIRE(server.add(babbler).ok());
    const EchoClient stub(client.connect("sim://server").value());
    WireOutcome outcome;
    stub.Now(request_of("x"), {}, outcome.done());
    outcome.wait(rig);
    CHECK(outcome.status.code() == Code::internal);
    CHECK(outcome.status.effect() == Effect::applied);

    std::optional<Status> awaited;
    struct {
        Task<void> operator()(EchoClient with, std::optional<Status>& into) {
            into = co_await ask_now(with);
        }
    } ask;
    client.spawn(ask(stub, awaited));
    REQUIRE(rig.run_until([&] { return awaited.has_value(); }));
    CHECK(awaited->code() == Code::internal);
    CHECK(awaited->effect() == Effect::applied);
    CHECK(awaited->peer() == "sim://server");
}

TEST_CASE("a message that is too large is refused with a hint to weft.BulkRef") {
    RuntimeOptions small;
    small.argument_bytes_max = 512 << 10;
    EchoPair pair(small);
    WireOutcome request, reply, enormous;
    pair.stub().Now(request_of(std::string(1 << 20, 'x')), {}, request.done());
    request.wait(pair.rig);
    CHECK(request.status.code() == Code::invalid_argument);
    CHECK(request.status.effect() == Effect::none);
    CHECK(std::string(request.status.text()).find("weft.BulkRef") != std::string::npos);

    pair.stub().Now(request_of("large"), {}, reply.done());
    reply.wait(pair.rig);
    CHECK(reply.status.code() == Code::resource_exhausted);
    CHECK(reply.status.effect() == Effect::applied);

    static constexpr ProtoMethod<Enormous, EchoReply> method{.id = EchoMethods::Now.id};
    weft::call(pair.channel, method, Enormous(), {}, enormous.done());
    enormous.wait(pair.rig);
    CHECK(enormous.status.code() == Code::invalid_argument);
    CHECK(enormous.status.effect() == Effect::none);
}

TEST_CASE("a method that is not overridden is UNIMPLEMENTED by name, with no effect") {
    EchoPair pair;
    WireOutcome task, plain;
    pair.stub().Missing({}, {}, task.done());
    pair.stub().MissingNow({}, {}, plain.done());
    plain.wait(pair.rig);
    REQUIRE(pair.rig.run_until([&] { return task.completions == 1; }));
    CHECK(task.status.code() == Code::unimplemented);
    CHECK(task.status.effect() == Effect::none);
    CHECK(task.status.text() == "echo.v1.Echo/Missing is not implemented by this server");
    CHECK(plain.status.code() == Code::unimplemented);
    CHECK(plain.status.text() == "echo.v1.Echo/MissingNow is not implemented by this server");
}

TEST_CASE("the method's own timeout applies unless the call sets one") {
    EchoPair pair;
    WireOutcome own, named;
    pair.stub().Hasty({}, {}, own.done());
    own.wait(pair.rig);
    CHECK(own.status.ok());
    CHECK(pair.service.remaining <= 20ms);
    CHECK(pair.service.remaining > 10ms);
    pair.stub().Hasty({}, {.timeout = 50ms}, named.done());
    named.wait(pair.rig);
    CHECK(pair.service.remaining <= 50ms);
    CHECK(pair.service.remaining > 40ms);
}

TEST_CASE("the options of a method in the .proto are in its description") {
    static_assert(EchoMethods::Hasty.timeout == 20ms);
    static_assert(EchoMethods::Hasty.idempotent && !EchoMethods::Now.idempotent);
    static_assert(EchoMethods::Hasty.priority == 3);
    static_assert(EchoMethods::delete_.id.name == "echo.v1.Echo/delete");
}

TEST_CASE("a reused message carries no fields from its last use") {
    EchoPair pair;
    EchoRequest full = request_of("text");
    full.add_numbers(7);
    std::vector<EchoReply> replies;
    const auto keep = [&](const Status& status, const EchoReply& reply) {
        CHECK(status.ok());
        replies.push_back(reply);
    };
    pair.stub().Now(full, {}, keep);
    REQUIRE(pair.rig.run_until([&] { return replies.size() == 1; }));
    pair.stub().Now({}, {}, keep);
    REQUIRE(pair.rig.run_until([&] { return replies.size() == 2; }));
    CHECK(replies[0].numbers_size() == 1);
    CHECK(replies[1].text().empty());
    CHECK(replies[1].numbers_size() == 0);
}

TEST_CASE("a reference survives encoding in a message, and invalid bytes are refused") {
    EchoPair pair;
    const Region region = pair.server.expose(pair.server.allocate(4096).value(), {}).value();
    const RegionRef ref = region.ref(100, 200);
    BulkRef message;
    to_proto(ref, &message);
    CHECK(message.ByteSizeLong() <= 64);
    const Result<RegionRef> back = from_proto(message);
    REQUIRE(back.ok());
    CHECK(back->key == ref.key);
    CHECK(back->offset == 100);
    CHECK(back->length == 200);

    for (const std::string& desc : {std::string(), std::string("short"), std::string(48, '\xff'),
                                    std::string(48, '\0'), std::string(1000, 'x')}) {
        message.set_desc(desc);
        const Result<RegionRef> refused = from_proto(message);
        REQUIRE_FALSE(refused.ok());
        CHECK(refused.status().code() == Code::permission_denied);
    }
}
