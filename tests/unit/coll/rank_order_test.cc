// The positions of ranks, compared with a full scan; and trees of two levels over them.
#include <algorithm>
#include <memory>
#include <random>

#include "coll/rank_order.h"
#include "coll/tree.h"
#include "support/catch.h"
#include "support/seed.h"

using namespace weft;

namespace coll_rank_order {

using coll::Interval;
using coll::RankOrder;

using Random = std::mt19937_64;

std::uint32_t host_of(const Member& member) {
    const std::string& uri = member.uris.front();
    return static_cast<std::uint32_t>(std::stoul(uri.substr(uri.find("://") + 4)));
}

GroupView view_of(std::uint32_t n, std::uint32_t hosts, Random& random, bool has_gaps = true) {
    std::vector<Member> members;
    std::uint32_t rank = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
        const std::string host = "h" + std::to_string(random() % hosts);
        const std::string scheme = random() % 2 == 0 ? "tcp://" : "verbs://";
        members.push_back({rank, {scheme + host + ":" + std::to_string(1000 + i)}, i + 1, false});
        rank += 1 + (has_gaps ? static_cast<std::uint32_t>(random() % 3) : 0);
    }
    return GroupView::make("g", 1, std::move(members)).value();
}

// Some ranks of the view; at least one.
RankSet some_of(const GroupView& view, Random& random) {
    RankSet chosen;
    const std::uint64_t share = 1 + random() % 8;
    for (const Member& member : view.members()) {
        if (random() % 8 < share) chosen.add(member.rank);
    }
    if (chosen.empty())
        chosen.add(view.at(static_cast<std::uint32_t>(random() % view.size())).rank);
    return chosen;
}

std::vector<const Member*> in_order(const GroupView& view, const RankSet& chosen,
                                    std::uint32_t root, bool by_host) {
    std::vector<const Member*> all;
    for (const Member& member : view.members()) {
        if (chosen.empty() || chosen.contains(member.rank)) all.push_back(&member);
    }
    const Member* const first = all[root];
    if (!by_host) {
        std::rotate(all.begin(), all.begin() + root, all.end());
        return all;
    }
    // Hosts in order of their lowest rank in the view, rotated so that the root's host comes first.
    std::vector<std::uint32_t> hosts;
    for (const Member& member : view.members()) {
        const std::uint32_t host = host_of(member);
        if (std::count(hosts.begin(), hosts.end(), host) == 0) hosts.push_back(host);
    }
    std::rotate(hosts.begin(), std::find(hosts.begin(), hosts.end(), host_of(*first)), hosts.end());
    std::vector<const Member*> grouped;
    for (const std::uint32_t host : hosts) {
        for (const Member* one : all) {
            if (host_of(*one) == host) grouped.push_back(one);
        }
        if (host != host_of(*first)) continue;
        std::rotate(grouped.begin(), std::find(grouped.begin(), grouped.end(), first),
                    grouped.end());
    }
    return grouped;
}

std::vector<std::uint32_t> hosts_of(const std::vector<const Member*>& all) {
    std::vector<std::uint32_t> begin;
    for (std::uint32_t at = 0; at < all.size(); ++at) {
        if (at == 0 || host_of(*all[at]) != host_of(*all[at - 1])) begin.push_back(at);
    }
    return begin;
}

std::vector<std::uint32_t> all_of(const coll::HostStarts& hosts) {
    std::vector<std::uint32_t> all;
    for (std::uint32_t host = 0; host < hosts.size(); ++host) all.push_back(hosts[host]);
    return all;
}

// The parents of the positions below a node.
void walk(std::uint32_t node, Interval below, const coll::Tree& tree, const RankOrder& rank_order,
          std::vector<std::uint32_t>& parent_of) {
    std::uint32_t next = below.first;
    std::vector<Interval> children = coll::split(below, tree, rank_order.hosts());
    for (const Interval child : children) {
        REQUIRE(child.size() >= 1);
        REQUIRE(parent_of[child.first] == ~0u);
        parent_of[child.first] = node;
        walk(child.first, {child.first + 1, child.last}, tree, rank_order, parent_of);
    }
    std::sort(children.begin(), children.end(),
              [](const Interval& a, const Interval& b) { return a.first < b.first; });
    for (const Interval child : children) {  // They cover all positions.
        REQUIRE(child.first == next);
        next = child.last;
    }
    REQUIRE(next == below.last);
}

void check_two_levels(const RankOrder& rank_order, const coll::Tree& tree, bool outside) {
    const std::uint32_t n = rank_order.all().size();
    const std::uint32_t no_parent = n;
    std::vector<std::uint32_t> parent_of(n, ~0u);
    walk(outside ? no_parent : 0, {outside ? 0u : 1u, n}, tree, rank_order, parent_of);
    const std::vector<std::uint32_t> hosts = all_of(rank_order.hosts());
    for (std::uint32_t at = outside ? 0 : 1; at < n; ++at) {
        REQUIRE(parent_of[at] != ~0u);
        const bool is_first = std::binary_search(hosts.begin(), hosts.end(), at);
        const std::uint32_t from = parent_of[at];
        if (is_first) {  // From the first rank of another host.
            REQUIRE((from == no_parent || std::binary_search(hosts.begin(), hosts.end(), from)));
        } else {
            REQUIRE(from != no_parent);
            REQUIRE(host_of(rank_order.at(at)) == host_of(rank_order.at(from)));
        }
    }
}

const std::vector<coll::Tree> trees = {{coll::Shape::flat},        {coll::Shape::k_ary, 2},
                                       {coll::Shape::k_ary, 5},    {coll::Shape::k_nomial, 2},
                                       {coll::Shape::k_nomial, 4}, {},
                                       {coll::Shape::greedy, 2, 1}};

TEST_CASE("rank order: positions equal those of a full scan, for all, chosen and named ranks") {
    for (std::uint64_t index = 0; index < 600; ++index) {
        Random random(test::seed_of(index));
        INFO("TEST_SEED=" << test::seed_of(index));
        const auto n = static_cast<std::uint32_t>(1 + random() % 40);
        const GroupView view = view_of(n, 1 + static_cast<std::uint32_t>(random() % n), random);
        RankSet chosen;
        if (random() % 2 == 0) chosen = some_of(view, random);
        const std::uint32_t size = coll::members_among(view, chosen.ranges());
        REQUIRE(size == (chosen.empty() ? n : chosen.size()));
        const auto root = static_cast<std::uint32_t>(random() % size);
        const bool by_host = random() % 2 == 0;
        const RankOrder rank_order({view, chosen.ranges(), root, by_host});
        const auto expected = in_order(view, chosen, root, by_host);
        REQUIRE(rank_order.all() == Interval{0, size});
        REQUIRE(rank_order.root() == root);
        REQUIRE_FALSE(rank_order.is_named());
        REQUIRE(expected.size() == size);
        for (std::uint32_t at = 0; at < size; ++at) REQUIRE(rank_order.at(at) == *expected[at]);
        REQUIRE(all_of(rank_order.hosts()) ==
                (by_host ? hosts_of(expected) : std::vector<std::uint32_t>()));
        // The view's order by host is the same for every root.
        const RankOrder shared(
            {view, chosen.ranges(), root, by_host, std::make_shared<coll::HostOrder>(view)});
        for (std::uint32_t at = 0; at < size; ++at) REQUIRE(shared.at(at) == *expected[at]);

        // A part of the order with members by name has the same trees as the whole.
        const auto first = static_cast<std::uint32_t>(random() % size);
        const auto last = first + 1 + static_cast<std::uint32_t>(random() % (size - first));
        std::vector<const Member*> members;
        for (std::uint32_t at = first; at < last; ++at) members.push_back(&rank_order.at(at));
        const auto bytes = coll::encode_members(members);
        const RankOrder named(first, coll::decode_members(bytes, last - first).value(), root,
                              by_host);
        REQUIRE(named.is_named());
        REQUIRE(named.all() == Interval{first, last});
        Member room;
        for (std::uint32_t at = first; at < last; ++at) {
            REQUIRE(named.at(at, room) == rank_order.at(at));
            REQUIRE(std::ranges::equal(named.named({at, at + 1}),
                                       coll::encode_members({&rank_order.at(at)})));
        }
        REQUIRE(std::ranges::equal(named.named({first, last}), bytes));
        for (const coll::Tree& tree : trees) {
            REQUIRE(coll::split({first + 1, last}, tree, named.hosts()) ==
                    coll::split({first + 1, last}, tree, rank_order.hosts()));
        }
    }
}

TEST_CASE("rank order: a tree of two levels keeps hosts whole and enters each by its first rank") {
    for (std::uint32_t n = 1; n <= 512; n += n < 40 ? 1 : 23) {
        for (std::uint64_t sample = 0; sample < 6; ++sample) {
            Random random(test::seed_of(n * 16 + sample));
            INFO("TEST_SEED=" << test::seed_of(n * 16 + sample) << ", " << n << " ranks");
            const std::uint32_t hosts = sample == 0 ? 1
                                        : sample == 1
                                            ? n
                                            : 1 + static_cast<std::uint32_t>(random() % n);
            const GroupView view = view_of(n, hosts, random, sample % 2 == 0);
            RankSet chosen;
            if (sample > 2) chosen = some_of(view, random);
            const std::uint32_t size = coll::members_among(view, chosen.ranges());
            const RankOrder rank_order(
                {view, chosen.ranges(), static_cast<std::uint32_t>(random() % size), true});
            for (const coll::Tree& tree : trees) {
                check_two_levels(rank_order, tree, false);
                check_two_levels(rank_order, tree, true);
            }
        }
    }
}

TEST_CASE("rank order: each rank has one position, for up to 512 ranks and every root") {
    Random random(test::seed_of(512));
    INFO("TEST_SEED=" << test::seed_of(512));
    const GroupView largest = view_of(512, 20, random);
    for (std::uint32_t n = 1; n <= 512; ++n) {
        const auto last = largest.members().begin() + n;
        const GroupView view = GroupView::make("g", 1, {largest.members().begin(), last}).value();
        for (std::uint32_t root = 0; root < n; ++root) {
            const RankSet chosen = root % 3 == 0 ? RankSet() : some_of(view, random);
            const std::uint32_t size = coll::members_among(view, chosen.ranges());
            const std::uint32_t place = root % size;
            const RankOrder rank_order({view, chosen.ranges(), place, root % 2 == 0});
            std::vector<bool> is_placed(n);
            bool is_right = rank_order.all() == Interval{0, size};
            for (std::uint32_t at = 0; at < size; ++at) {
                const Member& member = rank_order.at(at);
                const auto index = static_cast<std::size_t>(&member - view.members().data());
                is_right &= !is_placed[index] && (chosen.empty() || chosen.contains(member.rank));
                is_placed[index] = true;
            }
            INFO(n << " ranks, root " << root);
            REQUIRE(is_right);
        }
    }
}

TEST_CASE("rank order: a selection of all ranks takes no memory of its own") {
    Random random(1);
    const RankOrder rank_order({view_of(100, 3, random), {}, 17, false});
    CHECK(rank_order.heap_bytes() == 0);
}

TEST_CASE("rank order: memory grows with the ranges of a selection, not with their members") {
    Random random(1);
    const GroupView view = view_of(5000, 3, random, false);
    const RankOrder rank_order({view, {{0, 2000}, {2002, UINT32_MAX}}, 3000, false});
    CHECK(rank_order.all().size() == 4999);
    CHECK(rank_order.at(0).rank == 3001);
    CHECK(rank_order.heap_bytes() <= 64);
}

}  // namespace coll_rank_order
