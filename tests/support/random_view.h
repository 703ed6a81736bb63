// Views drawn by a seed: small, with gaps between ranks and many similar members.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <weft/group_view.h>

#include "base/random.h"

namespace weft::test {

// An address that no member of another rank gets.
inline std::string random_uri(base::Random& random, std::uint32_t rank) {
    const std::string name = std::to_string(rank) + '-' + std::to_string(random.next() % 4);
    switch (random.next() % 4) {
        case 0: return "sm://node-" + name;
        case 1: return "tcp://host-" + name + ":7400";
        case 2: return "unix:///run/a \"quoted\\\" pläce" + name;
        default:
            return "verbs://[fd00::" + std::to_string(rank % 10000) + ':' +
                   std::to_string(rank / 10000 % 10000) + ':' + std::to_string(rank / 100000000) +
                   "]:7400";
    }
}

inline Member random_member(base::Random& random, std::uint32_t rank) {
    Member member;
    member.rank = rank;
    const std::uint64_t uris = 1 + random.next() % 3;
    for (std::uint64_t i = 0; i < uris; ++i) member.uris.push_back(random_uri(random, rank));
    if (random.next() % 2 == 0) member.incarnation = random.next() >> random.next() % 64;
    member.draining = random.next() % 4 == 0;
    return member;
}

inline std::vector<Member> random_members(base::Random& random) {
    // Close to each other, or anywhere up to the highest rank.
    const unsigned shift = random.next() % 2 == 0 ? 61 : 32;
    std::set<std::uint32_t> ranks;
    const std::uint64_t wanted = 1 + random.next() % 7;
    while (ranks.size() < wanted) {
        ranks.insert(
            std::min(static_cast<std::uint32_t>(random.next() >> shift), GroupView::rank_max));
    }
    if (random.next() % 8 == 0) ranks.insert(GroupView::rank_max);
    std::vector<Member> members;
    for (const std::uint32_t rank : ranks) members.push_back(random_member(random, rank));
    return members;
}

inline std::string random_name(base::Random& random) {
    constexpr const char* names[] = {"g", "store", "a\"b\\c\n\x01\x7f", "gruppe-ü", "{{{[[[\"\"\""};
    return names[random.next() % std::size(names)];
}

inline GroupView random_view(base::Random& random) {
    return GroupView::make(random_name(random), random.next() >> random.next() % 64,
                           random_members(random))
        .value();
}

// Changes one field of one member, adds or removes a member, or changes the epoch or the name.
inline GroupView mutated(const GroupView& view, base::Random& random) {
    std::string name = view.name();
    std::uint64_t epoch = view.epoch();
    std::vector<Member> members = view.members();
    Member& member = members[random.next() % members.size()];
    switch (random.next() % 9) {
        case 0: member.draining = !member.draining; break;
        case 1: member.incarnation ^= 1; break;
        case 2: member.uris.push_back(random_uri(random, member.rank)); break;
        case 3: member.uris.front() = random_uri(random, member.rank); break;
        case 4: std::swap(member.uris.front(), member.uris.back()); break;
        case 5: member.rank ^= 1; break;
        case 6: epoch ^= 1; break;
        case 7: name += '1'; break;
        default: members.push_back(random_member(random, 3000));
    }
    const Result<GroupView> other = GroupView::make(name, epoch, members);
    return other ? *other : view;  // A duplicate rank.
}

inline bool are_equal(const GroupView& a, const GroupView& b) {
    return a.name() == b.name() && a.epoch() == b.epoch() && a.members() == b.members();
}

}  // namespace weft::test
