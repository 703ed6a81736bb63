#include <weft/group.h>

#include <algorithm>

#include <weft/method.h>

#include "na/address.h"

namespace weft {

static Status bad(std::string why) {
    return fail(Code::invalid_argument, "group: " + std::move(why));
}

static Status judge(const Member& member) {
    if (member.uris.empty()) return bad("rank " + std::to_string(member.rank) + " has no address");
    for (const std::string& uri : member.uris) {
        Result<na::Address> address = na::parse_address(uri);
        if (!address) {
            return std::move(address).status().in("group: rank " + std::to_string(member.rank));
        }
    }
    return {};
}

static std::uint64_t digest_of(const std::string& name, std::uint64_t epoch,
                               const std::vector<Member>& members) {
    // One unambiguous text: lengths in front of everything variable.
    std::string text = std::to_string(name.size()) + ":" + name + "@" + std::to_string(epoch);
    for (const Member& member : members) {
        text += "/" + std::to_string(member.uris.size());
        for (const std::string& uri : member.uris) text += "," + std::to_string(uri.size()) + uri;
    }
    return method_hash(text);
}

Result<GroupView> GroupView::make(std::string name, std::uint64_t epoch,
                                  std::vector<Member> members) {
    if (name.empty()) return bad("no name");
    if (members.empty()) return bad("no members");
    if (members.size() > members_max) return bad("too many members");
    std::sort(members.begin(), members.end(),
              [](const Member& a, const Member& b) { return a.rank < b.rank; });
    for (std::size_t i = 0; i < members.size(); ++i) {
        if (i > 0 && members[i].rank == members[i - 1].rank) {
            return bad("rank " + std::to_string(members[i].rank) + " is there twice");
        }
        if (members[i].rank != i) {
            return bad("ranks must be 0 to " + std::to_string(members.size() - 1) +
                       ", each once; rank " + std::to_string(i) + " is missing");
        }
        if (Status status = judge(members[i]); !status.ok()) return status;
    }
    GroupView view;
    view.digest_ = digest_of(name, epoch, members);
    view.name_ = std::move(name);
    view.epoch_ = epoch;
    view.members_ = std::move(members);
    return view;
}

}  // namespace weft
