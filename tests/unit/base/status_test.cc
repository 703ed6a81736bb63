#include <weft/result.h>
#include <weft/status.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "support/catch.h"

using namespace weft;

TEST_CASE("codes have gRPC's names and numbers") {
    CHECK(name_of(Code::ok) == "OK");
    CHECK(name_of(Code::cancelled) == "CANCELLED");
    CHECK(name_of(Code::unauthenticated) == "UNAUTHENTICATED");
    CHECK(static_cast<int>(Code::deadline_exceeded) == 4);
    CHECK(static_cast<int>(Code::unavailable) == 14);
    CHECK(static_cast<int>(Code::data_loss) == 15);
    for (int code = 0; code <= code_max; ++code) {
        CHECK(name_of(static_cast<Code>(code)) != "INVALID_CODE");
    }
    CHECK(name_of(static_cast<Code>(code_max + 1)) == "INVALID_CODE");
    CHECK(name_of(static_cast<Effect>(9)) == "invalid");
    CHECK(name_of(static_cast<Stage>(9)) == "invalid");
}

TEST_CASE("a status carries code, text, effect, stage and peer") {
    const Status status = fail(Code::unavailable, "peer died")
                              .with_effect(Effect::unknown)
                              .with_stage(Stage::sent)
                              .with_peer("sm://store");
    CHECK_FALSE(status.ok());
    CHECK_FALSE(status);
    CHECK(status.code() == Code::unavailable);
    CHECK(status.text() == "peer died");
    CHECK(status.to_string() ==
          "UNAVAILABLE: peer died (effect unknown, stage sent, peer sm://store)");
    CHECK(fail(Code::internal, "").to_string() == "INTERNAL");
    CHECK(fail(Code::internal, "why").to_string() == "INTERNAL: why");
    CHECK(fail(Code::aborted, "x").with_stage(Stage::queued).to_string() ==
          "ABORTED: x (effect none, stage queued)");
    CHECK(Status().to_string() == "OK");
    CHECK(fail(Code::aborted, "a\n\x1b[31m\xff").to_string() == "ABORTED: a\\x0a\\x1b[31m\\xff");
    CHECK(Status().text().empty());
    CHECK(Status().peer().empty());
}

TEST_CASE("a copy of a status is its own") {
    Status one = fail(Code::not_found, "no file").with_peer("sm://a");
    Status two = one;
    two = std::move(two).in("reading");
    CHECK(one.text() == "no file");
    CHECK(two.text() == "reading: no file");
    CHECK(two.peer() == "sm://a");
    two = one;
    CHECK(two.text() == "no file");
    const Status& self = two;
    two = self;
    CHECK(two.text() == "no file");
    one = Status();
    CHECK(one.ok());
    CHECK(one.text().empty());
    CHECK(two.code() == Code::not_found);
}

TEST_CASE("context is added to failures only") {
    CHECK(Status().in("reading").ok());
    CHECK(Status().in("reading").text().empty());
    CHECK(fail(Code::internal, "x").in("inner").in("outer").text() == "outer: inner: x");
}

TEST_CASE("a failure with the code OK is INTERNAL") {
    for (const Status& status : {fail(Code::ok, "fine"), rejected(Code::ok, "fine")}) {
        CHECK(status.code() == Code::internal);
        CHECK(status.text() == "a failure without a code: fine");
    }
    CHECK(rejected(Code::ok, "").is_rejection());
    CHECK(rejected(Status()).ok());
    CHECK_FALSE(rejected(Status()).is_rejection());
}

TEST_CASE("a result holds a value or the status of a failure") {
    Result<std::string> good(std::string("value"));
    CHECK(good.ok());
    CHECK(good.status().ok());
    CHECK(*good == "value");
    CHECK(good->size() == 5);
    CHECK(good.value() == "value");
    CHECK(std::as_const(good).value() == "value");

    Result<std::string> bad(fail(Code::not_found, "no file"));
    CHECK_FALSE(bad);
    CHECK(bad.status().code() == Code::not_found);
    CHECK_THROWS_AS(bad.value(), BadResult);
    CHECK_THROWS_WITH(bad.value(), "NOT_FOUND: no file");
    CHECK(std::move(bad).status().text() == "no file");
}

TEST_CASE("a result is made of anything that converts to its value") {
    const auto text = [](bool known) -> Result<std::string> {
        if (!known) return fail(Code::not_found, "no text");
        return "text";
    };
    CHECK(text(true).value() == "text");
    CHECK(text(false).status().code() == Code::not_found);
    const Result<std::shared_ptr<const std::string>> shared = std::make_unique<std::string>("own");
    CHECK(**shared == "own");
    const Result<std::optional<int>> maybe = 7;
    CHECK(maybe->value() == 7);
    static_assert(!std::is_convertible_v<int, Result<std::unique_ptr<int>>>);
    static_assert(!std::is_convertible_v<Result<int>, Result<long>>);
    static_assert(!std::is_convertible_v<Result<int>, Result<bool>>);
}

TEST_CASE("a result of a success without a value is INTERNAL") {
    const Result<int> odd{Status()};
    CHECK_FALSE(odd.ok());
    CHECK(odd.status().code() == Code::internal);
}

TEST_CASE("a value that only moves can be taken out of its result") {
    Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
    REQUIRE(result);
    const std::unique_ptr<int> taken = *std::move(result);
    CHECK(*taken == 7);
    Result<std::unique_ptr<int>> again(std::make_unique<int>(8));
    CHECK(*std::move(again).value() == 8);
}

TEST_CASE("rejected() keeps code and text of a local failure and leaves OK unchanged") {
    const Status rejection = rejected(fail(Code::resource_exhausted, "no room"));
    CHECK(rejection.code() == Code::resource_exhausted);
    CHECK(rejection.text() == "no room");
    CHECK(rejection.effect() == Effect::none);
    CHECK(rejection.stage() == Stage::executing);
    CHECK(rejection.is_rejection());
    CHECK(Status(rejection).is_rejection());
    CHECK(Status(rejection).in("here").is_rejection());
    const Status good = rejected(Status());
    CHECK(good.ok());
    CHECK(good.stage() == Stage::none);
    CHECK_FALSE(good.is_rejection());
}

TEST_CASE("rejected() leaves a status with an effect, a stage or a peer unchanged") {
    const Status why = fail(Code::aborted, "no");
    for (const Status& status :
         {Status(why).with_effect(Effect::applied), Status(why).with_effect(Effect::unknown),
          Status(why).with_stage(Stage::sent).with_peer("sm://a")}) {
        const Status same = rejected(status);
        CHECK(same.effect() == status.effect());
        CHECK(same.stage() == status.stage());
        CHECK_FALSE(same.is_rejection());
    }
    const Status own = rejected(Code::aborted, "no");
    CHECK(own.is_rejection());
    CHECK_FALSE(Status(own).with_effect(Effect::none).is_rejection());
    CHECK_FALSE(Status(own).with_peer("sm://a").is_rejection());
}

TEST_CASE("an invalid code becomes UNKNOWN, and the text contains its number") {
    const Status cast = fail(static_cast<Code>(98), "bind: in use");
    CHECK(cast.code() == Code::unknown);
    CHECK(cast.text() == "code 98 is none of weft::Code: bind: in use");
    CHECK(rejected(static_cast<Code>(255), "").code() == Code::unknown);
    CHECK(fail(static_cast<Code>(code_max), "").code() == Code::unauthenticated);
}
