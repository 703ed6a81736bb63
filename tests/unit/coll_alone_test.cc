// Ranks whose reply is missing of a merged one: each is asked alone, some at a time.
#include <algorithm>
#include <deque>

#include "base/codec.h"
#include "coll/part.h"
#include "support/catch.h"

using namespace weft;

namespace coll_alone {

using coll::Answer;
using coll::Asking;
using coll::Interval;
using coll::Part;

constexpr std::uint32_t many = 5000;

std::vector<std::byte> number(std::uint64_t value) {
    std::vector<std::byte> bytes(sizeof value);
    base::store(bytes.data(), value);
    return bytes;
}

// Where it began, outside: it asks two, who say that all went well, and not what came of it.
struct Origin final : Part::Port {
    explicit Origin(std::uint32_t ranks = many, bool merges = true)
        : n(ranks), part(*this, plan(n, merges), {1, 1}, role(n)) {
        part.begin(now);
    }
    static std::shared_ptr<const coll::Plan> plan(std::uint32_t n, bool merges) {
        std::vector<Member> members;
        for (std::uint32_t rank = 0; rank < n; ++rank)
            members.push_back({rank, {"tcp://a:" + std::to_string(rank + 1)}});
        const GroupView view = GroupView::make("g", 1, std::move(members)).value();
        auto made = std::make_shared<coll::Plan>();
        made->roster = std::make_shared<coll::Roster>(coll::Roster::Parts{view, {}, 0, false});
        made->tree = {coll::Shape::k_ary, 2};
        if (merges)
            made->merge.reduction = {Reduction::Operation::sum, Reduction::Number::u64, false};
        return made;
    }
    static Part::Role role(std::uint32_t n) {
        Part::Role role;
        role.mine = {0, n};
        role.is_origin = true;
        role.runs = false;
        return role;
    }
    // That each of these replied its position.
    static Answer answer_of(Interval of) {
        std::uint64_t sum = 0;
        for (std::uint32_t at = of.first; at < of.last; ++at) sum += at;
        Answer answer;
        answer.ok = {of};
        answer.has_value = true;
        answer.value = number(sum);
        return answer;
    }
    std::uint32_t id_of(Interval of) const {
        const auto last = std::find_if(all.rbegin(), all.rend(),
                                       [&](const Part::Ask& ask) { return ask.of == of; });
        REQUIRE(last != all.rend());
        return last->id;
    }
    void answer(Interval of) { part.answered(id_of(of), answer_of(of), now); }
    // Of all who have not answered.
    void silence() {
        now += 10s;
        part.on_time(now);
    }
    void answer_alone(const Part::Ask& ask) {
        if (ask.of.first % 7 == 0) {
            part.failed(ask.id, fail(Code::unavailable, "gone"), now);
        } else {
            part.answered(ask.id, answer_of(ask.of), now);
        }
    }
    // Of all the children, and of all that is below them.
    void answer_without_value() {
        for (const Part::Ask& ask : std::exchange(children, {})) {
            Answer answer;
            answer.ok = {ask.of};
            part.answered(ask.id, std::move(answer), now);
        }
    }

    void ask(Part&, const Part::Ask& ask) override {
        all.push_back(ask);
        if (ask.asking == Asking::all) return children.push_back(ask);
        CHECK(ask.asking == Asking::alone);
        CHECK(ask.of.size() == 1);
        ++asked[ask.of.first];
        deepest = std::max(deepest, ++depth);
        if (answers_at_once) answer_alone(ask);
        else open.push_back(ask);
        --depth;
    }
    void give_up(Part&, const Part::Ask&, bool stop) override {
        ++given_up;
        told_to_stop += stop;
    }
    void run(Part&) override {}
    void stop_running(Part&) override {}
    void reply_to(Part&, std::uint32_t, Answer::Kind) override {}
    void refresh(Part&, std::uint32_t, std::uint64_t) override {}
    void tell(Part&) override { ++tells; }
    void done(Part&) override { is_done = true; }
    void check_end() const {
        REQUIRE(is_done);
        CHECK(tells == 1);
        CHECK(std::all_of(asked.begin(), asked.end(), [](int times) { return times == 1; }));
        std::uint64_t sum = 0;
        for (std::uint32_t at = 0; at < n; ++at) sum += at % 7 == 0 ? 0 : at;
        CHECK(part.outcomes().value() == number(sum));
        CHECK(part.outcomes().ok_count() == n - (n + 6) / 7);
    }

    const std::uint32_t n;
    TimePoint now = TimePoint{} + 1h;
    bool answers_at_once = false;
    std::vector<Part::Ask> children;
    std::deque<Part::Ask> open;
    std::vector<int> asked = std::vector<int>(n);
    std::vector<Part::Ask> all;
    int depth = 0, deepest = 0, given_up = 0, told_to_stop = 0, tells = 0;
    bool is_done = false;
    Part part;
};

TEST_CASE("coll alone: whose replies are missing of a merged one are asked, 64 at a time") {
    Origin origin;
    REQUIRE(origin.children.size() == 2);
    origin.answer_without_value();
    while (!origin.open.empty()) {
        REQUIRE(origin.open.size() <= 64);
        CHECK(origin.part.asks() <= 64 + 2);
        // In any order.
        const std::size_t which = origin.open.size() / 3;
        const Part::Ask one = origin.open[which];
        origin.open.erase(origin.open.begin() + static_cast<std::ptrdiff_t>(which));
        origin.answer_alone(one);
    }
    origin.check_end();
}

TEST_CASE("coll alone: those who answer at once are asked one after the other, not within") {
    Origin origin;
    origin.answers_at_once = true;
    origin.answer_without_value();
    origin.check_end();
    CHECK(origin.deepest == 1);
}

TEST_CASE("coll alone: those who say nothing keep nobody from being asked") {
    Origin origin;
    origin.answer_without_value();
    REQUIRE(origin.open.size() == 64);
    const TimePoint later = origin.now + 10s;
    origin.part.on_time(later);
    CHECK(origin.open.size() == 128);
    CHECK(origin.part.due() > later);
}

TEST_CASE("coll alone: those that take long keep nobody from being asked") {
    Origin origin;
    origin.answer_without_value();
    for (int round = 0; round < 2; ++round) {
        for (const Part::Ask& one : std::exchange(origin.open, {})) {
            Answer nothing_yet;
            nothing_yet.kind = Answer::Kind::partial;
            origin.part.answered(one.id, std::move(nothing_yet), origin.now);
        }
        CHECK(origin.open.size() == 64);
    }
}

// Position 0 says nothing, and then position 1 below it; so 2 and 3 are asked, and answer. What 1
// says then can't be taken.
TEST_CASE("coll alone: one below a silent one is asked, when nothing else will tell of it") {
    Origin origin(14);
    origin.answer({7, 14});
    origin.silence();
    origin.answer({4, 7});
    origin.silence();
    for (const std::uint32_t at : {2u, 3u}) origin.answer({at, at + 1});
    origin.answer({1, 4});
    REQUIRE(origin.open.size() == 1);
    CHECK(origin.open.front().of == Interval{1, 2});
    origin.part.failed(origin.id_of({0, 7}), fail(Code::unavailable, "gone"), origin.now);
    CHECK_FALSE(origin.is_done);
    origin.answer({1, 2});
    CHECK(origin.is_done);
    CHECK(origin.part.outcomes().ok_count() == 13);
}

TEST_CASE("coll alone: of whom a complete answer says nothing has failed, below a silent one too") {
    Origin origin(14, false);
    origin.answer({7, 14});
    origin.silence();
    origin.answer({4, 7});
    Answer two;
    two.ok = {{1, 3}};
    origin.part.answered(origin.id_of({1, 4}), std::move(two), origin.now);
    CHECK(origin.part.outcomes().known_count() == 13);
    origin.part.failed(origin.id_of({0, 7}), fail(Code::unavailable, "gone"), origin.now);
    CHECK(origin.is_done);
    REQUIRE(origin.part.outcomes().notable().size() == 2);
    CHECK(origin.part.outcomes().notable()[0].position == 3);
    CHECK(origin.part.outcomes().notable()[0].status.code() == Code::internal);
}

TEST_CASE("coll alone: when time is over those who wait have not been asked") {
    Origin origin;
    origin.answer_without_value();
    origin.part.on_time(never);
    CHECK(origin.is_done);
    CHECK(origin.open.size() == 64);
    CHECK(origin.part.outcomes().notable().size() == many);
}

TEST_CASE("coll alone: a stop ends those that are under way, and asks nobody else") {
    Origin origin;
    origin.answer_without_value();
    origin.part.stop(fail(Code::cancelled, "stopped"));
    CHECK(origin.is_done);
    CHECK(origin.given_up == 64);
    CHECK(origin.open.size() == 64);
}

// Position 0 tells of 1, 2 and 3, and dies.
TEST_CASE("coll alone: ranks of which a rank that died has told are not asked again") {
    Origin origin(14, false);
    Answer so_far;
    so_far.kind = Answer::Kind::partial;
    so_far.ok = {{2, 4}};
    so_far.outcomes.push_back({1, fail(Code::unavailable, "gone"), {}});
    origin.part.answered(origin.id_of({0, 7}), std::move(so_far), origin.now);
    origin.part.failed(origin.id_of({0, 7}), fail(Code::unavailable, "gone"), origin.now);
    const auto is_asked = [&](Interval of) {
        return std::any_of(origin.all.begin(), origin.all.end(),
                           [&](const Part::Ask& ask) { return ask.of == of; });
    };
    CHECK(is_asked({4, 7}));
    CHECK_FALSE(is_asked({1, 4}));
    origin.answer({4, 7});
    origin.answer({7, 14});
    CHECK(origin.is_done);
    CHECK(origin.part.outcomes().ok_count() == 12);
}

// Position 0 is silent, and tells of all the same in the end.
TEST_CASE("coll alone: ranks that were asked again hear of the end where it began") {
    Origin origin(14, false);
    origin.answer({7, 14});
    origin.silence();
    REQUIRE(origin.all.size() == 4);
    origin.answer({0, 7});
    CHECK(origin.is_done);
    CHECK(origin.given_up == 2);
    CHECK(origin.told_to_stop == 2);
}

}  // namespace coll_alone
