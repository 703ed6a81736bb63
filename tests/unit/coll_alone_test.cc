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

constexpr std::uint32_t n = 5000;

std::vector<std::byte> number(std::uint64_t value) {
    std::vector<std::byte> bytes(sizeof value);
    base::store(bytes.data(), value);
    return bytes;
}

// Where it began, outside: it asks two, who say that all went well, and not what came of it.
struct Origin final : Part::Port {
    explicit Origin(bool at_once = false) : answers_at_once(at_once) {}
    static TimePoint now() { return TimePoint{} + 1h; }
    static std::shared_ptr<const coll::Plan> plan() {
        std::vector<Member> members;
        for (std::uint32_t rank = 0; rank < n; ++rank) members.push_back({rank, {"sim://a"}});
        const GroupView view = GroupView::make("g", 1, std::move(members)).value();
        auto made = std::make_shared<coll::Plan>();
        made->roster = std::make_shared<coll::Roster>(coll::Roster::Parts{view, {}, 0, false});
        made->tree = {coll::Shape::k_ary, 2};
        made->merge.reduction = {Reduction::Operation::sum, Reduction::Number::u64, false};
        return made;
    }
    static Part::Role role() {
        Part::Role role;
        role.mine = {0, n};
        role.is_origin = true;
        role.runs = false;
        return role;
    }
    static Answer answer_of(std::uint32_t position) {
        Answer answer;
        answer.ok = {{position, position + 1}};
        answer.has_value = true;
        answer.value = number(position);
        return answer;
    }
    void answer_alone(const Part::Ask& ask) {
        if (ask.of.first % 7 == 0) {
            part.failed(ask.id, fail(Code::unavailable, "gone"), now());
        } else {
            part.answered(ask.id, answer_of(ask.of.first), now());
        }
    }
    // Of all the children, and of all that is below them.
    void answer_without_value() {
        for (const Part::Ask& ask : std::exchange(children, {})) {
            Answer answer;
            answer.ok = {ask.of};
            part.answered(ask.id, std::move(answer), now());
        }
    }

    void ask(Part&, const Part::Ask& ask) override {
        if (ask.asking == Asking::all) return children.push_back(ask);
        CHECK(ask.asking == Asking::alone);
        CHECK(ask.of.size() == 1);
        ++asked[ask.of.first];
        deepest = std::max(deepest, ++depth);
        if (answers_at_once) answer_alone(ask);
        else open.push_back(ask);
        --depth;
    }
    void give_up(Part&, std::uint32_t, bool) override { ++given_up; }
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

    const bool answers_at_once;
    std::vector<Part::Ask> children;
    std::deque<Part::Ask> open;
    std::vector<int> asked = std::vector<int>(n);
    int depth = 0, deepest = 0, given_up = 0, tells = 0;
    bool is_done = false;
    Part part{*this, plan(), {1, 1}, role()};
};

TEST_CASE("coll alone: whose replies are missing of a merged one are asked, 64 at a time") {
    Origin origin;
    origin.part.begin(Origin::now());
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
    Origin origin(true);
    origin.part.begin(Origin::now());
    origin.answer_without_value();
    origin.check_end();
    CHECK(origin.deepest == 1);
}

TEST_CASE("coll alone: those who say nothing keep nobody from being asked") {
    Origin origin;
    origin.part.begin(Origin::now());
    origin.answer_without_value();
    REQUIRE(origin.open.size() == 64);
    const TimePoint later = Origin::now() + 10s;
    origin.part.on_time(later);
    CHECK(origin.open.size() == 128);
    CHECK(origin.part.due() > later);
}

TEST_CASE("coll alone: a stop ends those that are under way, and asks nobody else") {
    Origin origin;
    origin.part.begin(Origin::now());
    origin.answer_without_value();
    origin.part.stop(fail(Code::cancelled, "stopped"));
    CHECK(origin.is_done);
    CHECK(origin.given_up == 64);
    CHECK(origin.open.size() == 64);
}

}  // namespace coll_alone
