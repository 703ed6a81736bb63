// How often a part asks one that says, whenever it is asked, that there is more to come.
#include <optional>

#include "coll/part.h"
#include "support/catch.h"

using namespace weft;

namespace coll_pace {

using coll::Answer;
using coll::Asking;
using coll::Part;

// Answers each question that comes, at once, in that way; or says nothing.
struct Eager final : Part::Port {
    void ask(Part& part, const Part::Ask& ask) override {
        ++asks;
        last = ask;
        under_way = true;
        if (says) answer(part, *says);
    }
    void answer(Part& part, Answer::Kind kind) {
        under_way = false;
        Answer told = coll::Outcomes::told_nothing(kind);
        if (kind == Answer::Kind::complete) told.ok = {last.of};
        part.answered(last.id, std::move(told), now);
    }
    void give_up(Part&, const Part::Ask& ask, bool stop) override {
        given_up = true;
        is_told = stop;
        none_under_way |= !under_way || ask.id != last.id;
    }
    void run(Part&) override {}
    void stop_running(Part&) override {}
    void reply_to(Part&, std::uint32_t, Answer::Kind) override {}
    void refresh(Part&, std::uint32_t, std::uint64_t) override {}
    void tell(Part&) override {}
    void done(Part&) override { is_done = true; }

    std::optional<Answer::Kind> says;
    TimePoint now{};
    int asks = 0;
    Part::Ask last;
    bool under_way = false;
    bool given_up = false;
    bool is_told = false;
    bool none_under_way = false;  // Given up was what nobody had asked.
    bool is_done = false;
};

// Rank 0 of two, which asks the other one.
struct Pair {
    Pair() : part(port, plan(), {1, 1}, role()) {}
    static std::shared_ptr<const coll::Plan> plan() {
        auto made = std::make_shared<coll::Plan>();
        const GroupView view =
            GroupView::make("pair", 1, {{0, {"sim://a"}}, {1, {"sim://b"}}}).value();
        made->roster = std::make_shared<coll::Roster>(coll::Roster::Parts{view, {}, 0, false});
        return made;
    }
    static Part::Role role() {
        Part::Role role;
        role.mine = {0, 2};
        role.is_origin = true;
        role.until = TimePoint{} + 100s;
        return role;
    }
    void run_until(TimePoint end) {
        while (!part.is_over() && part.due() <= end) {
            REQUIRE(part.due() >= port.now);
            port.now = part.due();
            part.on_time(port.now);
        }
        port.now = end;
    }
    Eager port;
    Part part;
};

TEST_CASE("coll pace: who says at once that there is more to come is asked a few times a second") {
    for (const Answer::Kind kind : {Answer::Kind::partial, Answer::Kind::silent}) {
        Pair pair;
        pair.port.says = kind;
        pair.part.begin(TimePoint{});
        CHECK(pair.port.asks == 1);
        pair.run_until(TimePoint{} + 1s);
        CHECK(pair.port.asks >= 3);
        CHECK(pair.port.asks <= 6);
        pair.run_until(TimePoint{} + 61s);
        CHECK(pair.port.asks <= 6 + 61);  // From then on half of two seconds lie between them.
        CHECK(pair.port.last.asking == Asking::rest);
        CHECK_FALSE(pair.port.last.is_silent);  // It is heard of all the time.
        pair.port.says = Answer::Kind::complete;
        pair.run_until(TimePoint{} + 63s);
        pair.part.ran({}, {});
        CHECK(pair.port.is_done);
        CHECK(pair.part.outcomes().ok_count() == 2);
    }
}

TEST_CASE("coll pace: who says so when his patience is over is asked for the rest at once") {
    Pair pair;
    pair.part.begin(TimePoint{});
    pair.run_until(TimePoint{} + Part::patience_of(pair.port.last));
    REQUIRE(pair.port.asks == 1);
    pair.port.answer(pair.part, Answer::Kind::partial);
    CHECK(pair.port.asks == 2);
    CHECK(pair.port.last.rounds == 1);
}

TEST_CASE(
    "coll pace: nothing is under way while it waits to ask, but who is asked hears of a stop") {
    Pair pair;
    pair.port.says = Answer::Kind::partial;
    pair.part.begin(TimePoint{});
    pair.port.says.reset();
    pair.port.answer(pair.part, Answer::Kind::partial);  // Once more: nobody asked for it.
    CHECK(pair.port.asks == 1);
    const bool is_cancelled = GENERATE(true, false);
    if (is_cancelled) pair.part.stop(fail(Code::cancelled, "enough"));
    else pair.part.on_time(TimePoint{} + 100s);
    CHECK(pair.port.is_done);
    CHECK(pair.port.is_told == is_cancelled);
    CHECK(pair.port.given_up == is_cancelled);
}

TEST_CASE("coll pace: who is asked again, and says nothing then, is silent all the same") {
    Pair pair;
    pair.port.says = Answer::Kind::partial;
    pair.part.begin(TimePoint{});
    pair.port.says.reset();
    pair.run_until(TimePoint{} + 5s);
    CHECK(pair.port.asks == 2);
    CHECK(pair.part.due() == TimePoint{} + 100s);  // Of nobody else anything is wanted.
    // He comes back, and is as eager as before.
    const int before = pair.port.asks;
    pair.port.says = Answer::Kind::partial;
    pair.port.answer(pair.part, Answer::Kind::partial);
    pair.run_until(TimePoint{} + 6s);
    CHECK(pair.port.asks > before);
    CHECK(pair.port.asks <= before + 5);
    pair.port.says.reset();
    pair.run_until(TimePoint{} + 10s);
    pair.part.stop(fail(Code::cancelled, "enough"));
    CHECK(pair.port.is_done);
    CHECK(pair.port.given_up);
    CHECK_FALSE(pair.port.none_under_way);
}

}  // namespace coll_pace
