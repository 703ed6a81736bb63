#include "coll/member_list.h"

#include <algorithm>

#include "base/codec.h"
#include "group/host.h"

namespace weft::coll {

// Each: rank u32, incarnation u64, count of addresses u8, each address as text (u16 + bytes).
static constexpr std::size_t member_bytes = 4 + 8 + 1;

std::vector<std::byte> encode_members(const std::vector<const Member*>& members) {
    std::size_t total = 0;
    for (const Member* member : members) {
        total += member_bytes;
        for (const std::string& uri : member->uris) total += 2 + uri.size();
    }
    std::vector<std::byte> bytes(total);
    base::Writer out(bytes);
    for (const Member* member : members) {
        const std::size_t uris = std::min(member->uris.size(), GroupView::uris_max);
        out.put(member->rank);
        out.put(member->incarnation);
        out.put(static_cast<std::uint8_t>(uris));
        for (std::size_t i = 0; i < uris; ++i) out.put_text(member->uris[i]);
    }
    bytes.resize(out.written());
    return bytes;
}

Result<MemberList> decode_members(ByteView bytes, std::uint32_t count) {
    const auto bad = [] {
        return fail(Code::invalid_argument, "a collective with an impossible list of members");
    };
    if (count > bytes.size() / member_bytes || bytes.size() > UINT32_MAX) return bad();
    MemberList list;
    list.begins_.reserve(std::size_t{count} + 1);
    base::Reader in(bytes);
    for (std::uint32_t i = 0; i < count; ++i) {
        list.begins_.push_back(static_cast<std::uint32_t>(bytes.size() - in.remaining()));
        const auto rank = in.take<std::uint32_t>();
        in.take<std::uint64_t>();
        const auto uris = in.take<std::uint8_t>();
        const bool is_possible = rank <= GroupView::rank_max && uris > 0;
        if (!in.ok() || !is_possible || uris > GroupView::uris_max) return bad();
        for (std::uint8_t uri = 0; uri < uris; ++uri) in.take_text();
    }
    if (!in.ok() || in.remaining() > 0) return bad();
    list.begins_.push_back(static_cast<std::uint32_t>(bytes.size()));
    list.bytes_.assign(bytes.begin(), bytes.end());
    return list;
}

ByteView MemberList::bytes(std::uint32_t first, std::uint32_t last) const {
    return ByteView(bytes_).subspan(begins_[first], begins_[last] - begins_[first]);
}

Member MemberList::at(std::uint32_t index) const {
    base::Reader in(bytes(index, index + 1));
    Member member;
    member.rank = in.take<std::uint32_t>();
    member.incarnation = in.take<std::uint64_t>();
    const auto uris = in.take<std::uint8_t>();
    member.uris.reserve(uris);
    for (std::uint8_t i = 0; i < uris; ++i) member.uris.emplace_back(in.take_text());
    return member;
}

std::string_view MemberList::host_at(std::uint32_t index) const {
    base::Reader in(bytes(index, index + 1));
    in.take_bytes(member_bytes - 1);
    const auto uris = in.take<std::uint8_t>();
    for (std::uint8_t i = 0; i < uris; ++i) {
        if (const auto host = group::host_in(in.take_text())) return *host;
    }
    return {};
}

}  // namespace weft::coll
