#include "support/echo.h"

using namespace weft;
using echo::v1::EchoMethods;
using echo::v1::EchoReply;
using echo::v1::EchoRequest;
using test::EchoPair;
using test::request_of;

namespace {

struct EchoOutcome {
    int completions = 0;
    Status status;
    std::string text;
    auto done() {
        return [this](const Status& with, const EchoReply& reply) {
            ++completions;
            status = with;
            text = reply.text();
        };
    }
};

// The two kinds of handler, so that the tests cover both.
using Method = OperationId (*)(const echo::v1::EchoClient&, const EchoRequest&, EchoOutcome&);

OperationId now(const echo::v1::EchoClient& stub, const EchoRequest& in, EchoOutcome& outcome) {
    return stub.Now(in, {}, outcome.done());
}
OperationId later(const echo::v1::EchoClient& stub, const EchoRequest& in, EchoOutcome& outcome) {
    return stub.Later(in, {}, outcome.done());
}

EchoOutcome outcome_of(EchoPair& pair, Method method, const EchoRequest& in) {
    EchoOutcome outcome;
    method(pair.stub(), in, outcome);
    CHECK(outcome.completions == 0);
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
    pair.rig.run_for(1ms);
    CHECK(outcome.completions == 1);
    return outcome;
}

}  // namespace

TEST_CASE("both kinds of handler complete a callback") {
    EchoPair pair;
    for (Method handled : {now, later}) {
        const EchoOutcome outcome = outcome_of(pair, handled, request_of("hello"));
        CHECK(outcome.status.ok());
        CHECK(outcome.text == "hello");
    }
}

TEST_CASE("a handler's failure has effect applied, unless it was rejected or is unknown") {
    EchoPair pair;
    for (Method handled : {now, later}) {
        const EchoOutcome failed = outcome_of(pair, handled, request_of("fail"));
        CHECK(failed.status.code() == Code::not_found);
        CHECK(failed.status.text() == "nothing here");
        CHECK(failed.status.effect() == Effect::applied);
        CHECK(failed.status.stage() == Stage::executing);
        CHECK(failed.text.empty());
        CHECK(outcome_of(pair, handled, request_of("reject")).status.effect() == Effect::none);
        CHECK(outcome_of(pair, handled, request_of("unsure")).status.effect() == Effect::unknown);
    }
}

namespace {

// Fails, or throws, with a partly filled large reply.
struct Wasteful final : Service {
    Status Now(Call&, const EchoRequest& in, EchoReply& out) {
        out.set_text(std::string(1 << 20, 'x'));
        if (in.text() == "throw") throw std::runtime_error("half-way");
        return fail(Code::not_found, "half-way");
    }
    void register_methods(MethodRegistrar& registrar) override {
        serve<&Wasteful::Now>(registrar, *this, EchoMethods::Now);
    }
};

}  // namespace

TEST_CASE("the memory of a large reply is released, also when its handler fails or throws") {
    Wasteful service;
    test::SimRig rig;
    REQUIRE(rig.add("server").add(service).ok());
    Channel channel = rig.add("").connect("sim://server").value();
    for (const char* text : {"fail", "throw"}) {
        int completions = 0;
        weft::call(channel, EchoMethods::Now, request_of(text), CallOptions{},
                   [&](const Status& status, const EchoReply&) { completions += !status.ok(); });
        REQUIRE(rig.run_until([&] { return completions == 1; }));
        const detail::Pooled<EchoReply> next;  // Of the pool that the handler used.
        CHECK((*next).SpaceUsedLong() < 64 * 1024);
    }
}

TEST_CASE("an exception becomes INTERNAL and its text is not sent") {
    EchoPair pair;
    for (Method handled : {now, later}) {
        const EchoOutcome outcome = outcome_of(pair, handled, request_of("throw"));
        CHECK(outcome.status.code() == Code::internal);
        CHECK(outcome.status.effect() == Effect::unknown);
        CHECK(std::string(outcome.status.text()).find("secret") == std::string::npos);
        CHECK(outcome_of(pair, handled, request_of("after")).status.ok());
    }
}

TEST_CASE("a coroutine gets a reply in the short form of co_await, also with g++ 12") {
    EchoPair pair;
    struct {
        Task<Status> operator()(echo::v1::EchoClient stub, std::string& text) {
            Result<EchoReply> reply = co_await stub.Later(request_of("a longer text than fits a "
                                                                     "small string"),
                                                          {.timeout = 500ms});
            if (!reply) co_return reply.status();
            text = reply->text();
            co_return Status();
        }
    } body;
    std::string text;
    CHECK(pair.run(body(pair.stub(), text)).ok());
    CHECK(text == "a longer text than fits a small string");
}
