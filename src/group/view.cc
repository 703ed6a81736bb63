#include <weft/group_view.h>

#include <algorithm>
#include <tuple>

#include "base/assert.h"
#include "base/fork.h"
#include "base/text.h"
#include "na/address.h"

namespace weft {

static Status bad(std::string why) {
    return fail(Code::invalid_argument, "group: " + std::move(why));
}

namespace {

// FNV-1a, 64 bits, over unambiguous fields: a field of variable length is preceded by its length.
class Digest {
  public:
    void add(std::uint64_t number) {
        for (int byte = 0; byte < 8; ++byte) mix(static_cast<unsigned char>(number >> 8 * byte));
    }
    void add(const std::string& text) {
        add(text.size());
        for (const char c : text) mix(static_cast<unsigned char>(c));
    }
    std::uint64_t value() const { return hash_; }

  private:
    void mix(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001b3; }
    std::uint64_t hash_ = 0xcbf29ce484222325;
};

// Finds addresses that two ranks share: one process can't be two ranks, and each would receive
// messages for the other. Compares 64-bit digests, because a view may have a million addresses;
// sorting puts equal digests side by side. (Addresses crafted to collide may hide such a pair, with
// no further effect.)
class Addresses {
  public:
    void add(const na::Address& address, std::uint32_t member, std::uint32_t place) {
        Digest digest;
        digest.add(address.uri());
        all_.push_back({digest.value(), member, place});
    }
    Status validate(const std::vector<Member>& members) {
        std::sort(all_.begin(), all_.end());
        for (std::size_t i = 1; i < all_.size(); ++i) {
            const One &one = all_[i - 1], &next = all_[i];
            if (one.digest != next.digest || one.member == next.member) continue;
            WEFT_ASSERT(one.member < members.size() && next.member < members.size());
            const Member &first = members[one.member], &second = members[next.member];
            const na::Address address = *na::parse_address(first.uris[one.place]);
            if (address != *na::parse_address(second.uris[next.place])) continue;
            return bad("ranks " + std::to_string(first.rank) + " and " +
                       std::to_string(second.rank) + " have one address, " + address.uri() +
                       ": omit addresses that may reach another member");
        }
        return {};
    }

  private:
    struct One {
        std::uint64_t digest;
        std::uint32_t member;  // Its index,
        std::uint32_t place;   // and the index of the address in it.
        bool operator<(const One& other) const {
            return std::tie(digest, member, place) <
                   std::tie(other.digest, other.member, other.place);
        }
    };
    std::vector<One> all_;
};

}  // namespace

static Status validate(const Member& member, std::uint32_t index, Addresses& addresses) {
    const std::string label = "rank " + std::to_string(member.rank);
    if (member.uris.empty()) return bad(label + " has no address");
    if (member.uris.size() > GroupView::uris_max) {
        return bad(label + " has more than " + std::to_string(GroupView::uris_max) + " addresses");
    }
    for (std::uint32_t place = 0; place < member.uris.size(); ++place) {
        const std::string& uri = member.uris[place];
        Result<na::Address> address = na::parse_address(uri);
        if (!address) return std::move(address).status().in("group: " + label);
        if (!base::is_utf8(uri)) return bad(label + " has an address that is not UTF-8");
        addresses.add(*address, index, place);
    }
    return {};
}

static Status validate_name(const std::string& name) {
    if (name.empty()) return bad("no name");
    if (name.size() > GroupView::name_bytes_max)
        return bad("a name of more than " + std::to_string(GroupView::name_bytes_max) + " bytes");
    if (!base::is_utf8(name)) return bad("a name that is not UTF-8");
    return {};
}

static std::uint64_t digest_of(const std::string& name, std::uint64_t epoch,
                               const std::vector<Member>& members) {
    Digest digest;
    digest.add(name);
    digest.add(epoch);
    digest.add(members.size());
    for (const Member& member : members) {
        digest.add(member.rank);
        digest.add(member.incarnation);
        digest.add(member.draining ? 1 : 0);
        digest.add(member.uris.size());
        for (const std::string& uri : member.uris) digest.add(uri);
    }
    return digest.value();
}

Result<GroupView> GroupView::make(std::string name, std::uint64_t epoch,
                                  std::vector<Member> members) {
    if (Status status = validate_name(name); !status.ok()) return status;
    if (members.empty()) return bad("no members");
    if (members.size() > members_max) {
        return bad("more than " + std::to_string(members_max) + " members");
    }
    std::sort(members.begin(), members.end(),
              [](const Member& a, const Member& b) { return a.rank < b.rank; });
    std::size_t uri_bytes = 0;
    Addresses addresses;
    for (std::size_t i = 0; i < members.size(); ++i) {
        if (i > 0 && members[i].rank == members[i - 1].rank) {
            return bad("rank " + std::to_string(members[i].rank) + " is there twice");
        }
        if (members[i].rank > rank_max) {
            return bad("rank " + std::to_string(members[i].rank) + " is more than " +
                       std::to_string(rank_max));
        }
        Status status = validate(members[i], static_cast<std::uint32_t>(i), addresses);
        if (!status.ok()) return status;
        for (const std::string& uri : members[i].uris) uri_bytes += uri.size();
        if (uri_bytes > uri_bytes_max) {
            return bad("addresses of more than " + std::to_string(uri_bytes_max) + " bytes");
        }
    }
    if (Status status = addresses.validate(members); !status.ok()) return status;
    WEFT_DCHECK(uri_bytes <= uri_bytes_max);
    Data data;
    data.digest = digest_of(name, epoch, members);
    data.name = std::move(name);
    data.epoch = epoch;
    data.members = std::move(members);
    return GroupView(std::make_shared<const Data>(std::move(data)));
}

const GroupView::Data& GroupView::none() { return base::per_process<Data>(); }
// Made at load, before memory may be short.
[[maybe_unused]] static const std::size_t made_at_load = GroupView().size();

const Member* GroupView::find(std::uint32_t rank) const {
    const std::vector<Member>& members = data().members;
    if (rank < members.size() && members[rank].rank == rank) return &members[rank];
    const auto at =
        std::lower_bound(members.begin(), members.end(), rank,
                         [](const Member& member, std::uint32_t to) { return member.rank < to; });
    return at != members.end() && at->rank == rank ? &*at : nullptr;
}

}  // namespace weft
