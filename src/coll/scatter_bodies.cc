#include "coll/scatter_bodies.h"

#include <algorithm>

#include "base/assert.h"
#include "coll/wire.h"

namespace weft::coll {

Status sort_by_rank(std::vector<RankBytes>& bodies) {
    const auto before = [](const RankBytes& a, const RankBytes& b) { return a.first < b.first; };
    std::sort(bodies.begin(), bodies.end(), before);
    for (std::size_t i = 1; i < bodies.size(); ++i) {
        if (bodies[i - 1].first != bodies[i].first) continue;
        return fail(Code::invalid_argument,
                    "two bodies for rank " + std::to_string(bodies[i].first));
    }
    return {};
}

std::vector<std::byte> take_in_order(const RankOrder& rank_order, std::vector<RankBytes>& bodies) {
    const Interval all = rank_order.all();
    std::vector<std::vector<std::byte>> by_position;
    by_position.reserve(all.size());
    std::vector<char> taken(bodies.size(), 0);
    std::size_t total = 0;
    for (std::uint32_t at = all.first; at < all.last; ++at) {
        const auto body = std::lower_bound(
            bodies.begin(), bodies.end(), rank_order.at(at).rank,
            [](const RankBytes& one, std::uint32_t rank) { return one.first < rank; });
        WEFT_ASSERT(body != bodies.end() && body->first == rank_order.at(at).rank);
        taken[static_cast<std::size_t>(body - bodies.begin())] = 1;
        total += sizeof(std::uint32_t) + body->second.size();
        by_position.push_back(std::move(body->second));
    }
    std::vector<std::byte> pieces;
    pieces.reserve(total);
    for (const auto& body : by_position) {
        const auto bytes = static_cast<std::uint32_t>(body.size());
        const auto* const raw = reinterpret_cast<const std::byte*>(&bytes);
        pieces.insert(pieces.end(), raw, raw + sizeof bytes);
    }
    for (const auto& body : by_position) pieces.insert(pieces.end(), body.begin(), body.end());
    WEFT_ASSERT(pieces.size() == total);
    std::size_t at = 0;
    std::erase_if(bodies, [&](const RankBytes&) { return taken[at++] != 0; });
    return pieces;
}

std::vector<RankBytes> bodies_by_rank(const RankOrder& rank_order, ByteView pieces,
                                      std::vector<RankBytes> others) {
    const Interval all = rank_order.all();
    PieceReader reader(pieces, all.size());
    for (std::uint32_t at = all.first; at < all.last; ++at) {
        const ByteView body = reader.next();
        others.emplace_back(rank_order.at(at).rank,
                            std::vector<std::byte>(body.begin(), body.end()));
    }
    return others;
}

}  // namespace weft::coll
