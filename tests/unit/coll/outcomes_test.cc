// The known outcomes of a subtree, compared with a model: replies that arrive twice, late, in part
// or overlapping, and replies that can't be merged.
#include <map>
#include <random>

#include "base/codec.h"
#include "coll/outcomes.h"
#include "coll/wire.h"
#include "support/catch.h"
#include "support/seed.h"

using namespace weft;

namespace coll_outcomes {

using coll::Interval;
using coll::Outcomes;
using coll::SubtreeReply;

using Random = std::mt19937_64;
constexpr std::size_t room = 1 << 20;

// Refuses replies that begin with '!' unless they are the first.
Status join(std::vector<std::byte>& into, ByteView from) {
    if (!from.empty() && from[0] == std::byte{'!'}) return fail(Code::data_loss, "can't be read");
    into.insert(into.end(), from.begin(), from.end());
    return {};
}

enum class Way { list, sum, joined };

coll::Merge merge_for(Way way) {
    if (way == Way::list) return {};
    if (way == Way::sum) return {{Reduction::Operation::sum, Reduction::Number::u64, false}, {}};
    return {{Reduction::Operation::method, Reduction::Number::u64, true}, join};
}

// The outcome of each rank, the same in every reply that contains it.
struct Ranks {
    Ranks(std::uint32_t n, Way way, Random& random) : merge(merge_for(way)) {
        for (std::uint32_t at = 0; at < n; ++at) {
            std::vector<std::byte> reply;
            if (way == Way::sum) {
                // Some are longer than the others and can't be merged with them.
                reply.resize(random() % 16 == 0 ? 16 : 8);
                base::store(reply.data(), std::uint64_t{1} << at);
            } else {
                std::string text = "<" + std::to_string(at) + ">";
                if (way == Way::joined && random() % 16 == 0) text = "!" + text;
                if (way == Way::list && random() % 4 == 0) text.clear();
                const ByteView bytes = as_bytes(text);
                reply.assign(bytes.begin(), bytes.end());
            }
            replies.push_back(std::move(reply));
            fails.push_back(random() % 5 == 0);
        }
    }
    Status status(std::uint32_t at) const {
        const Status applied = Status().with_effect(Effect::applied).with_stage(Stage::executing);
        return fails[at] ? rejected(Code::not_found, "nothing at " + std::to_string(at)) : applied;
    }
    ByteView reply(std::uint32_t at) const {
        return fails[at] ? ByteView() : ByteView(replies[at]);
    }
    coll::Merge merge;
    std::vector<std::vector<std::byte>> replies;
    std::vector<bool> fails;
};

// The reply of a whole interval, put together at random from replies of its parts; encoded and
// decoded.
SubtreeReply reply_of(Interval of, const Ranks& ranks, Random& random, int depth) {
    Outcomes all(ranks.merge);
    std::vector<Interval> parts;
    for (std::uint32_t at = of.first; at < of.last;) {
        const std::uint32_t left = of.last - at;
        const auto size = depth == 0 ? 1 : 1 + static_cast<std::uint32_t>(random() % left);
        parts.push_back({at, at + size});
        at += size;
    }
    std::shuffle(parts.begin(), parts.end(), random);
    for (const Interval part : parts) {
        if (part.size() == 1) {
            all.add(part.first, ranks.status(part.first), ranks.reply(part.first));
        } else {
            all.add(part, reply_of(part, ranks, random, depth - 1));
        }
    }
    REQUIRE(all.known_count() == of.size());
    all.finish();
    return coll::decode_subtree_reply(
               coll::encode_subtree_reply(all.snapshot(SubtreeReply::Kind::complete), room))
        .value();
}

// All ranks are known: the value merges the ranks that are reported as succeeded.
void check_value(const Outcomes& all, const Ranks& ranks, Interval of) {
    std::map<std::uint32_t, const coll::Outcome*> exceptions;
    for (const coll::Outcome& one : all.exceptions()) {
        REQUIRE(exceptions.emplace(one.position, &one).second);
    }
    std::uint32_t ok = 0;
    std::vector<std::byte> value;
    for (std::uint32_t at = of.first; at < of.last; ++at) {
        const auto found = exceptions.find(at);
        const bool succeeded = found == exceptions.end() || found->second->status.ok();
        REQUIRE((!ranks.fails[at] || !succeeded));
        if (ranks.fails[at]) REQUIRE(found->second->status.code() == Code::not_found);
        if (!ranks.fails[at] && !succeeded) {  // Its reply could not be merged.
            REQUIRE_FALSE(ranks.merge.is_list());
            REQUIRE(found->second->status.effect() == Effect::applied);
        }
        if (!succeeded) continue;
        ++ok;
        const std::vector<std::byte>& reply = ranks.replies[at];
        if (ranks.merge.is_list()) {
            REQUIRE((found == exceptions.end() ? reply.empty() : found->second->reply == reply));
        } else if (ok == 1) {
            value = reply;
        } else {
            REQUIRE(ranks.merge(value, reply).ok());
        }
    }
    REQUIRE(all.ok_count() == ok);
    REQUIRE(all.value() == value);
}

TEST_CASE("outcomes: each rank counts once, whatever the order of the replies") {
    for (std::uint64_t index = 0; index < 6000; ++index) {
        Random random(test::seed_of(index));
        INFO("TEST_SEED=" << test::seed_of(index));
        const auto first = static_cast<std::uint32_t>(random() % 3);
        const Interval mine{first, first + 1 + static_cast<std::uint32_t>(random() % 40)};
        const Way way = static_cast<Way>(random() % 3);
        const Ranks ranks(mine.last, way, random);
        Outcomes all(ranks.merge);
        while (!all.contains(mine)) {
            const auto at = mine.first + static_cast<std::uint32_t>(random() % mine.size());
            const std::uint32_t ok_before = all.ok_count();
            const std::uint32_t known_before = all.known_count();
            if (random() % 3 == 0) {
                const bool was_known = all.contains({at, at + 1});
                REQUIRE(all.add(at, ranks.status(at), ranks.reply(at)) == !was_known);
                REQUIRE(all.known_count() == known_before + !was_known);
                continue;
            }
            const Interval of{at, at + 1 + static_cast<std::uint32_t>(random() % (mine.last - at))};
            SubtreeReply answer = reply_of(of, ranks, random, 2);
            if (way == Way::list && random() % 4 == 0) {  // A partial reply.
                answer.kind = SubtreeReply::Kind::partial;
                if (!answer.outcomes.empty()) answer.outcomes.pop_back();
                if (!answer.ok.empty()) answer.ok.erase(answer.ok.begin());
            }
            const bool is_new = all.missing(of) == std::vector<Interval>{of};
            const bool is_all = answer.kind == SubtreeReply::Kind::complete;
            all.add(of, std::move(answer));
            REQUIRE(all.ok_count() <= ok_before + of.size());
            // Only merged replies with some ranks known already may be ignored.
            if (is_all && (way == Way::list || is_new)) REQUIRE(all.contains(of));
        }
        REQUIRE(all.known_count() == mine.size());
        all.finish();
        check_value(all, ranks, mine);
    }
}

TEST_CASE("outcomes: a reply's outcomes of ranks outside its subtree or known ones are ignored") {
    const Status ok = Status().with_effect(Effect::applied);
    Outcomes all({});
    all.add(3, fail(Code::unavailable, "gone"), {});
    SubtreeReply lie;
    lie.ok = {{0, 9}};
    lie.outcomes.push_back({4, fail(Code::internal, "no"), {}});
    lie.outcomes.push_back({6, ok, {std::byte{1}}});
    lie.outcomes.push_back({2, ok, {std::byte{1}}});
    lie.outcomes.push_back({77, ok, {std::byte{1}}});
    all.add({2, 5}, lie);
    CHECK(all.known().intervals() == std::vector<Interval>{{2, 5}});
    CHECK(all.ok_count() == 1);
    REQUIRE(all.exceptions().size() == 3);
    CHECK(all.exceptions()[0].position == 3);
    CHECK(all.exceptions()[0].status.code() == Code::unavailable);
    CHECK(all.exceptions()[1].position == 2);
    CHECK(all.exceptions()[1].status.ok());
    CHECK(all.exceptions()[2].position == 4);  // The reply has both outcomes; the worse one counts.
    CHECK(all.exceptions()[2].status.code() == Code::internal);
}

TEST_CASE("outcomes: a merged value is taken whole or not at all") {
    std::vector<std::byte> eight(8);
    eight[0] = std::byte{1};
    SubtreeReply answer;
    answer.ok = {{2, 3}, {4, 6}};
    answer.outcomes.push_back({3, fail(Code::internal, "no"), {}});
    answer.has_value = true;
    answer.value = eight;
    SECTION("one of its ranks is known already") {
        Outcomes all(merge_for(Way::sum));
        all.add(4, Status(), eight);
        all.add({2, 6}, answer);
        CHECK(all.ok_count() == 1);
        CHECK(all.missing({2, 6}) == std::vector<Interval>{{2, 3}, {5, 6}});
        CHECK(all.value() == eight);
    }
    SECTION("one of its ranks is outside the sender's subtree") {
        Outcomes all(merge_for(Way::sum));
        all.add({2, 5}, answer);
        CHECK(all.ok_count() == 0);
        CHECK(all.value().empty());
    }
    SECTION("it is missing") {
        Outcomes all(merge_for(Way::sum));
        answer.has_value = false;
        all.add({2, 6}, answer);
        CHECK(all.ok_count() == 0);
    }
    SECTION("replies that are listed") {
        Outcomes all(merge_for(Way::sum));
        SubtreeReply listed;
        listed.outcomes.push_back({2, Status(), eight});
        all.add({2, 6}, listed);
        CHECK(all.known_count() == 0);
    }
}

TEST_CASE("outcomes: an ordered value with gaps keeps the order when replies fill the gaps") {
    Outcomes all(merge_for(Way::joined));
    const auto bytes = [](std::string_view text) {
        const ByteView view = as_bytes(text);
        return std::vector<std::byte>(view.begin(), view.end());
    };
    SubtreeReply holes;  // Without position 1.
    holes.ok = {{0, 1}, {2, 3}};
    holes.has_value = true;
    holes.value = bytes("<0><2>");
    all.add({0, 3}, holes);
    for (const std::uint32_t at : {0u, 1u, 2u}) {
        all.add(at, Status(), bytes("<" + std::to_string(at) + ">"));
    }
    all.finish();
    CHECK(as_text(all.value()) == "<0><1><2>");
}

TEST_CASE("outcomes: merged outcomes are sent once all are known, a rank's own at any time") {
    Outcomes all(merge_for(Way::joined));
    const std::vector<std::byte> reply{std::byte{'x'}};
    CHECK(all.own() == nullptr);
    all.keep_own(5, Status(), reply);
    all.add(5, Status(), reply);
    all.add(7, Status(), reply);
    CHECK(all.snapshot(SubtreeReply::Kind::partial).ok.empty());
    CHECK_FALSE(all.snapshot(SubtreeReply::Kind::partial).has_value);
    REQUIRE(all.own());
    CHECK(all.own()->ok == std::vector<Interval>{{5, 6}});
    CHECK(all.own()->value == reply);
    all.add_missing({5, 8}, fail(Code::unavailable, "gone"));
    all.finish();
    const SubtreeReply snapshot = all.snapshot(SubtreeReply::Kind::complete);
    CHECK(snapshot.ok == std::vector<Interval>{{5, 6}, {7, 8}});
    CHECK(as_text(snapshot.value) == "xx");
    REQUIRE(snapshot.outcomes.size() == 1);
    CHECK(snapshot.outcomes[0].position == 6);
}

// ---- replies that are no arrays of numbers ------------------------------------------------------

coll::Merge sum_of_numbers(bool ordered) {
    return {{Reduction::Operation::sum, Reduction::Number::u64, ordered}, {}};
}

std::vector<std::byte> numbers(std::size_t count) {
    std::vector<std::byte> bytes(count * 8);
    for (std::size_t i = 0; i < count; ++i) base::store(bytes.data() + i * 8, std::uint64_t{1});
    return bytes;
}

void check_failed(const coll::Outcome& one, std::uint32_t position, std::string_view text) {
    CHECK(one.position == position);
    CHECK(one.status.code() == Code::invalid_argument);
    CHECK(one.status.effect() == Effect::applied);
    CHECK(one.status.stage() == Stage::executing);
    INFO(one.status.text());
    CHECK(one.status.text().find(text) != std::string_view::npos);
}

TEST_CASE("outcomes: a reply that is no array of numbers fails its rank alone") {
    for (const bool ordered : {false, true}) {
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, std::size_t{12}}) {
            for (const std::uint32_t n : {1u, 2u, 5u}) {
                for (std::uint32_t bad = 0; bad < n; ++bad) {
                    INFO(bytes << " bytes of " << bad << " of " << n
                               << (ordered ? ", in order" : ""));
                    Outcomes all(sum_of_numbers(ordered));
                    for (std::uint32_t at = 0; at < n; ++at) {
                        const auto reply = at == bad ? std::vector<std::byte>(bytes) : numbers(1);
                        if (at == bad) all.keep_own(at, Status(), reply);
                        CHECK(all.add(at, Status(), reply));
                    }
                    all.finish();
                    REQUIRE(all.exceptions().size() == 1);
                    const std::string length = std::to_string(bytes) + " bytes";
                    check_failed(all.exceptions()[0], bad, length);
                    REQUIRE(all.own());
                    CHECK(all.own()->ok.empty());
                    CHECK_FALSE(all.own()->has_value);
                    REQUIRE(all.own()->outcomes.size() == 1);
                    check_failed(all.own()->outcomes[0], bad, length);
                    CHECK(all.ok_count() == n - 1);
                    std::vector<std::byte> sum = n > 1 ? numbers(1) : std::vector<std::byte>();
                    if (n > 1) base::store(sum.data(), std::uint64_t{n - 1});
                    CHECK(all.value() == sum);
                }
            }
        }
    }
}

TEST_CASE("outcomes: a reply may list ranks in any order and twice, and the first entry counts") {
    SubtreeReply reply;
    const auto say = [&](std::uint32_t position, Code code) {
        reply.outcomes.push_back({position, fail(code, "said"), {}});
    };
    for (std::uint32_t at = 20; at-- > 0;) {
        if (at % 2 == 0) say(at, Code::not_found);
    }
    say(4, Code::internal);
    say(25, Code::internal);  // Not requested.
    say(~std::uint32_t{0}, Code::internal);
    Outcomes all{coll::Merge{}};
    all.add(6, Status(), {});
    all.add({0, 20}, std::move(reply));
    CHECK(all.known_count() == 10);
    CHECK(all.ok_count() == 1);
    REQUIRE(all.exceptions().size() == 9);
    for (const coll::Outcome& one : all.exceptions()) {
        CHECK(one.position % 2 == 0);
        CHECK(one.position != 6);
        CHECK(one.status.code() == Code::not_found);
    }
    for (std::uint32_t at = 0; at < 30; ++at) {
        CHECK(all.contains({at, at + 1}) == (at % 2 == 0 && at < 20));
    }
    all.add_missing({0, 20}, fail(Code::internal, "missing"));
    CHECK(all.known_count() == 20);
    CHECK(all.exceptions().size() == 19);
}

TEST_CASE("outcomes: a value that is no array of numbers is not merged, whatever its sender") {
    for (const bool ordered : {false, true}) {
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{9}}) {
            Outcomes all(sum_of_numbers(ordered));
            SubtreeReply below;
            below.ok = {{0, 2}};
            below.has_value = true;
            below.value.resize(bytes);
            all.add({0, 2}, below);
            all.add(2, Status(), numbers(1));
            all.finish();
            CHECK(all.ok_count() == 1);
            REQUIRE(all.exceptions().size() == 2);
            check_failed(all.exceptions()[0], 0, std::to_string(bytes) + " bytes");
            check_failed(all.exceptions()[1], 1, std::to_string(bytes) + " bytes");
            CHECK(all.value() == numbers(1));
        }
    }
}

TEST_CASE("outcomes: arrays of another length than the first fail, with a reason") {
    for (const bool ordered : {false, true}) {
        Outcomes all(sum_of_numbers(ordered));
        all.add(0, Status(), numbers(1));
        all.add(1, Status(), numbers(2));
        all.add(2, Status(), numbers(1));
        all.finish();
        REQUIRE(all.exceptions().size() == 1);
        check_failed(all.exceptions()[0], 1, "a reduction of 16 bytes, where 8 were merged so far");
        CHECK(all.ok_count() == 2);
        CHECK(base::load<std::uint64_t>(all.value().data()) == 2);
    }
}

}  // namespace coll_outcomes
