// The messages between members: encoded and decoded, with too little room, and with bytes that no
// encoder writes.
#include <chrono>
#include <random>

#include "coll/wire.h"
#include "support/catch.h"
#include "support/seed.h"

using namespace weft;

namespace coll_wire {

using coll::Interval;
using coll::SubtreeReply;

using Random = std::mt19937_64;

std::vector<std::byte> some_bytes(Random& random, std::size_t most) {
    std::vector<std::byte> bytes(random() % (most + 1));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
}

std::string some_text(Random& random, std::size_t most) {
    return std::string(random() % (most + 1), static_cast<char>('a' + random() % 26));
}

coll::ForwardHeader some_header(Random& random) {
    coll::ForwardHeader header;
    header.view = random();
    header.group = random();
    header.epoch = random();
    header.key = {random(), random()};
    header.method = random();
    header.unacknowledged =
        static_cast<std::uint16_t>(std::min(random(), header.key.sequence) & 0xffff);
    header.client = static_cast<std::uint16_t>(random());
    header.parent = static_cast<std::uint32_t>(random() % 1000);
    header.root = static_cast<std::uint32_t>(random());
    header.first = static_cast<std::uint32_t>(random() % 1000);
    header.last = header.first + 1 + static_cast<std::uint32_t>(random() % 1000);
    header.tree.shape = static_cast<coll::Shape>(random() % 4);
    header.progress_interval_us = static_cast<std::uint32_t>(random());
    header.kind = static_cast<coll::RequestKind>(random() % 4);
    header.flags = static_cast<std::uint8_t>(random() % 64);
    header.operation = static_cast<std::uint8_t>(random() % 4);
    header.number = static_cast<std::uint8_t>(random() % 3);
    return header;
}

struct Forward {
    coll::ForwardHeader header;
    std::vector<RankSet::Range> ranges;
    std::vector<std::byte> named;
    std::vector<std::byte> body;
    std::vector<std::byte> encode() const {
        const coll::ForwardParts parts{header, ranges, named, body};
        std::vector<std::byte> bytes(parts.bytes());
        coll::encode_forward(parts, bytes);
        return bytes;
    }
};

Forward some_forward(Random& random) {
    RankSet ranks;
    for (std::uint64_t i = random() % 5; i > 0; --i) {
        const auto first = static_cast<std::uint32_t>(random() % 5000);
        ranks.add(first, first + static_cast<std::uint32_t>(random() % 50));
    }
    return {some_header(random), ranks.ranges(), some_bytes(random, 60), some_bytes(random, 60)};
}

std::vector<Member> some_members(Random& random, std::uint32_t count) {
    std::vector<Member> members;
    for (std::uint32_t i = 0; i < count; ++i) {
        Member member{static_cast<std::uint32_t>(random()), {}, random(), false};
        for (std::uint64_t uris = 1 + random() % 3; uris > 0; --uris) {
            member.uris.push_back("tcp://" + some_text(random, 20) + ":1");
        }
        members.push_back(std::move(member));
    }
    return members;
}

std::vector<std::byte> encode(const std::vector<Member>& members) {
    std::vector<const Member*> all;
    for (const Member& member : members) all.push_back(&member);
    return coll::encode_members(all);
}

std::vector<Member> all_of(const coll::MemberList& list) {
    std::vector<Member> all;
    for (std::uint32_t i = 0; i < list.size(); ++i) all.push_back(list.at(i));
    return all;
}

SubtreeReply some_answer(Random& random, std::size_t most = 300) {
    SubtreeReply answer;
    answer.kind = static_cast<SubtreeReply::Kind>(random() % 5);
    (answer.kind == SubtreeReply::Kind::stale ? answer.epoch : answer.clock) = random();
    answer.cost = {static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random())};
    std::uint32_t at = 0;
    for (std::uint64_t i = random() % 6; i > 0; --i) {
        at += static_cast<std::uint32_t>(random() % 4);
        const auto size = 1 + static_cast<std::uint32_t>(random() % 4);
        answer.ok.push_back({at, at + size});
        at += size;
    }
    answer.has_value = random() % 2 == 0;
    if (answer.has_value) answer.value = some_bytes(random, most * 2);
    for (std::uint64_t i = random() % 6; i > 0; --i) {
        coll::Outcome outcome;
        outcome.position = ++at;
        if (random() % 2 == 0) {
            outcome.status = Status().with_effect(Effect::applied).with_stage(Stage::executing);
            outcome.reply = some_bytes(random, most * 2);
        } else {
            outcome.status = fail(static_cast<Code>(1 + random() % 16), some_text(random, most))
                                 .with_effect(static_cast<Effect>(random() % 3))
                                 .with_stage(static_cast<Stage>(random() % 5))
                                 .with_peer(some_text(random, most));
        }
        answer.outcomes.push_back(std::move(outcome));
    }
    return answer;
}

// The size of a reply without bodies and texts; a small value is kept.
std::size_t least_of(const SubtreeReply& answer) {
    return 24 + answer.ok.size() * sizeof(Interval) + answer.outcomes.size() * 16 +
           (answer.has_value ? 4 + std::min<std::size_t>(answer.value.size(), 256) : 0);
}

template <class Check>
void for_each_damage(const std::vector<std::byte>& whole, Random& random, Check check) {
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
        check(std::vector<std::byte>(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(bytes)));
    }
    for (int i = 0; i < 60; ++i) {
        std::vector<std::byte> bytes = whole;
        for (std::uint64_t flips = 1 + random() % 3; flips > 0 && !bytes.empty(); --flips) {
            bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        }
        check(std::move(bytes));
    }
}

TEST_CASE("collective wire: requests decode as encoded, and damaged ones stay valid or fail") {
    for (std::uint64_t index = 0; index < 400; ++index) {
        Random random(test::seed_of(index));
        INFO("TEST_SEED=" << test::seed_of(index));
        const Forward sent = some_forward(random);
        const std::vector<std::byte> bytes = sent.encode();
        const coll::ForwardView got = coll::decode_forward(bytes).value();
        REQUIRE(got.header.view == sent.header.view);
        REQUIRE(got.header.key.sequence == sent.header.key.sequence);
        REQUIRE(got.header.subtree() == sent.header.subtree());
        REQUIRE(got.header.tree == sent.header.tree);
        REQUIRE(got.header.kind == sent.header.kind);
        REQUIRE(got.header.flags == sent.header.flags);
        REQUIRE(got.header.progress_interval_us == sent.header.progress_interval_us);
        REQUIRE(coll::decode_ranges(got.ranges).value() == sent.ranges);
        REQUIRE(std::ranges::equal(got.named, sent.named));
        REQUIRE(std::ranges::equal(got.body, sent.body));
        for_each_damage(bytes, random, [](const std::vector<std::byte>& damaged) {
            const auto view = coll::decode_forward(damaged);
            if (!view) {
                REQUIRE(view.status().code() == Code::invalid_argument);
                return;
            }
            REQUIRE(view->ranges.size() == view->header.ranges * sizeof(RankSet::Range));
            REQUIRE(view->header.last <= GroupView::members_max);
            REQUIRE(view->header.first < view->header.last);
        });
    }
}

TEST_CASE("collective wire: ranges of ranks must be in order and must not touch") {
    Random random(1);
    Forward sent = some_forward(random);
    const auto takes = [&](std::vector<RankSet::Range> ranges) {
        sent.ranges = std::move(ranges);
        const std::vector<std::byte> bytes = sent.encode();
        return coll::decode_ranges(coll::decode_forward(bytes).value().ranges).ok();
    };
    const std::uint32_t most = ~std::uint32_t{0};
    CHECK(takes({}));
    CHECK(takes({{0, most}}));
    CHECK(takes({{0, 0}, {2, 3}, {most, most}}));
    CHECK_FALSE(takes({{3, 2}}));
    CHECK_FALSE(takes({{0, 0}, {1, 2}}));
    CHECK_FALSE(takes({{4, 6}, {5, 9}}));
    CHECK_FALSE(takes({{4, 6}, {1, 2}}));
    CHECK_FALSE(takes({{0, most}, {0, 1}}));
}

TEST_CASE("collective wire: members decode as encoded, and damaged ones stay valid or fail") {
    for (std::uint64_t index = 0; index < 300; ++index) {
        Random random(test::seed_of(index));
        INFO("TEST_SEED=" << test::seed_of(index));
        const auto count = static_cast<std::uint32_t>(1 + random() % 8);
        const std::vector<Member> members = some_members(random, count);
        const std::vector<std::byte> bytes = encode(members);
        REQUIRE(all_of(coll::decode_members(bytes, count).value()) == members);
        REQUIRE_FALSE(coll::decode_members(bytes, count + 1).ok());
        REQUIRE_FALSE(coll::decode_members(bytes, count - 1).ok());
        REQUIRE_FALSE(coll::decode_members(bytes, ~std::uint32_t{0}).ok());
        for_each_damage(bytes, random, [&](const std::vector<std::byte>& damaged) {
            const auto got = coll::decode_members(damaged, count);
            if (!got) return;
            REQUIRE(got->size() == count);
            for (const Member& member : all_of(*got)) REQUIRE_FALSE(member.uris.empty());
        });
    }
    // Addresses above a member's limit are not sent.
    Member many{1, std::vector<std::string>(40, "tcp://a:1"), 1, false};
    CHECK(coll::decode_members(encode({many}), 1).value().at(0).uris.size() == 16);
}

TEST_CASE("collective wire: the bodies of a scatter are cut out as they were put together") {
    for (std::uint64_t index = 0; index < 300; ++index) {
        Random random(test::seed_of(index));
        INFO("TEST_SEED=" << test::seed_of(index));
        const auto first = static_cast<std::uint32_t>(random() % 100);
        const Interval all{first, first + 1 + static_cast<std::uint32_t>(random() % 12)};
        std::vector<std::vector<std::byte>> bodies;
        for (std::uint32_t i = 0; i < all.size(); ++i) bodies.push_back(some_bytes(random, 9));
        const auto put_together = [&](Interval of) {
            std::vector<std::byte> bytes;
            for (std::uint32_t at = of.first; at < of.last; ++at) {
                const auto size = static_cast<std::uint32_t>(bodies[at - all.first].size());
                for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::byte>(size >> 8 * i));
            }
            for (std::uint32_t at = of.first; at < of.last; ++at) {
                const auto& body = bodies[at - all.first];
                bytes.insert(bytes.end(), body.begin(), body.end());
            }
            return bytes;
        };
        const std::vector<std::byte> whole = put_together(all);
        for (std::uint32_t i = 0; i < all.size(); ++i) {
            REQUIRE(std::ranges::equal(coll::piece_of(whole, all.size(), i).value(), bodies[i]));
        }
        for (std::uint32_t begin = all.first; begin < all.last; ++begin) {
            for (std::uint32_t end = begin + 1; end <= all.last; ++end) {
                std::vector<std::byte> cut{std::byte{7}};
                coll::append_pieces(cut, whole, all, {begin, end});
                std::vector<std::byte> expected = put_together({begin, end});
                expected.insert(expected.begin(), std::byte{7});
                REQUIRE(cut == expected);
            }
        }
        REQUIRE_FALSE(coll::piece_of(whole, ~std::uint32_t{0}, 0).ok());
        for_each_damage(whole, random, [&](const std::vector<std::byte>& damaged) {
            const auto piece = coll::piece_of(damaged, all.size(), all.size() - 1);
            if (!piece) return;
            REQUIRE(piece->data() + piece->size() == damaged.data() + damaged.size());
            for (std::uint32_t i = 0; i < all.size(); ++i) {
                REQUIRE(coll::piece_of(damaged, all.size(), i).ok());
            }
        });
    }
}

TEST_CASE("collective wire: replies decode as encoded, and damaged ones stay valid or fail") {
    for (std::uint64_t index = 0; index < 400; ++index) {
        Random random(test::seed_of(index));
        INFO("TEST_SEED=" << test::seed_of(index));
        const SubtreeReply sent = some_answer(random, 200);
        const std::vector<std::byte> bytes = coll::encode_subtree_reply(sent, 1 << 20);
        REQUIRE(bytes.size() == coll::bytes_of(sent));
        const SubtreeReply got = coll::decode_subtree_reply(bytes).value();
        REQUIRE(got.kind == sent.kind);
        REQUIRE(got.epoch == sent.epoch);
        REQUIRE(got.clock == sent.clock);
        REQUIRE(got.cost == sent.cost);
        REQUIRE(got.ok == sent.ok);
        REQUIRE(got.has_value == sent.has_value);
        REQUIRE(got.value == sent.value);
        REQUIRE(got.outcomes.size() == sent.outcomes.size());
        for (std::size_t i = 0; i < got.outcomes.size(); ++i) {
            const coll::Outcome& a = sent.outcomes[i];
            const coll::Outcome& b = got.outcomes[i];
            REQUIRE(a.position == b.position);
            REQUIRE(a.status.to_string() == b.status.to_string());
            REQUIRE(a.status.effect() == b.status.effect());
            REQUIRE(a.status.stage() == b.status.stage());
            REQUIRE(a.status.peer() == b.status.peer());
            REQUIRE(a.reply == b.reply);
        }
        for_each_damage(bytes, random, [](const std::vector<std::byte>& damaged) {
            const auto answer = coll::decode_subtree_reply(damaged);
            if (!answer) {
                REQUIRE(answer.status().code() == Code::data_loss);
                return;
            }
            REQUIRE(coll::bytes_of(*answer) <= damaged.size());
        });
    }
}

TEST_CASE("collective wire: a cut reply keeps every rank, with the reason of each loss") {
    for (std::uint64_t index = 0; index < 3000; ++index) {
        Random random(test::seed_of(index));
        const SubtreeReply sent = some_answer(random);
        const std::size_t room = random() % (coll::bytes_of(sent) + 10);
        INFO("TEST_SEED=" << test::seed_of(index) << ", room for " << room << " of "
                          << coll::bytes_of(sent));
        const std::vector<std::byte> bytes = coll::encode_subtree_reply(sent, room);
        const SubtreeReply got = coll::decode_subtree_reply(bytes).value();
        if (bytes.size() > room) REQUIRE(bytes.size() == least_of(got));
        REQUIRE(got.kind == sent.kind);
        // Each rank as before, or with the reason for the loss of its reply.
        const auto find = [](const SubtreeReply& in,
                             std::uint32_t position) -> const coll::Outcome* {
            const auto at =
                std::find_if(in.outcomes.begin(), in.outcomes.end(),
                             [&](const coll::Outcome& one) { return one.position == position; });
            return at == in.outcomes.end() ? nullptr : &*at;
        };
        REQUIRE((got.has_value || !sent.has_value || !got.ok.size()));
        for (const Interval& one : sent.ok) {
            for (std::uint32_t at = one.first; at < one.last; ++at) {
                const bool still = std::any_of(got.ok.begin(), got.ok.end(),
                                               [&](Interval of) { return of.contains(at); });
                if (still) continue;
                const coll::Outcome* const now = find(got, at);
                REQUIRE(now);
                REQUIRE(now->status.code() == Code::resource_exhausted);
                REQUIRE(now->status.effect() == Effect::applied);
            }
        }
        for (const coll::Outcome& one : sent.outcomes) {
            const coll::Outcome* const now = find(got, one.position);
            REQUIRE(now);
            REQUIRE(now->status.effect() == one.status.effect());
            if (now->reply == one.reply) {
                REQUIRE(now->status.code() == one.status.code());
            } else {
                REQUIRE(now->status.code() == Code::resource_exhausted);
            }
        }
    }
}

TEST_CASE("collective wire: the largest of many replies are cut first, in the time of a sort") {
    SubtreeReply sent;
    std::size_t largest = 0;
    for (std::uint32_t at = 0; at < 200'000; ++at) {
        coll::Outcome& outcome = sent.outcomes.emplace_back();
        outcome.position = at;
        outcome.reply.resize(300 + at * 7919 % 1000);
        largest = std::max(largest, outcome.reply.size());
    }
    const std::size_t room = coll::bytes_of(sent) / 2;
    const auto began = std::chrono::steady_clock::now();
    const std::vector<std::byte> bytes = coll::encode_subtree_reply(sent, room);
    CHECK(std::chrono::steady_clock::now() - began < 5s);
    CHECK(bytes.size() <= room);
    CHECK(bytes.size() + largest > room);  // No more replies are cut than necessary.
    const SubtreeReply got = coll::decode_subtree_reply(bytes).value();
    REQUIRE(got.outcomes.size() == sent.outcomes.size());
    std::size_t largest_kept = 0, smallest_lost = largest;
    for (std::size_t i = 0; i < got.outcomes.size(); ++i) {
        const bool kept = got.outcomes[i].status.ok();
        const std::size_t size = sent.outcomes[i].reply.size();
        if (kept) largest_kept = std::max(largest_kept, size);
        else smallest_lost = std::min(smallest_lost, size);
    }
    CHECK(largest_kept <= smallest_lost);
}

TEST_CASE("collective wire: a request names at most as many ranges as a view has members") {
    for (const std::size_t more : {std::size_t{0}, std::size_t{1}}) {
        coll::ForwardHeader header;
        header.last = 1;
        std::vector<RankSet::Range> ranges(GroupView::members_max + more);
        for (std::uint32_t i = 0; i < ranges.size(); ++i) ranges[i] = {2 * i, 2 * i};
        CHECK(coll::decode_forward(Forward{header, ranges, {}, {}}.encode()).ok() == (more == 0));
    }
}

}  // namespace coll_wire
