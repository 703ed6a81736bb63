// The members of a group, in one epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/rank_set.h>
#include <weft/refuse.h>
#include <weft/result.h>

namespace weft {

// One server of a group: its rank, addresses and state.
struct Member {
    std::uint32_t rank = 0;         // Never reused, also when this member has left.
    std::vector<std::string> uris;  // The best one is used, as by connect().
    // The life of this rank, set by the authority of the group: the epoch in which it joined, say,
    // so that none repeats. 0: not given.
    std::uint64_t incarnation = 0;
    // True: the member is about to leave, and takes part in a collective only if
    // GroupCallOptions::include names it.
    bool draining = false;
    friend bool operator==(const Member&, const Member&) = default;
};

// Immutable and shared: a copy costs a reference. A change makes a new view with a higher epoch.
// Members are in order of rank; a member's index is its place in that order.
//
// Empty when default-made or moved from: no name, epoch 0, no members. No group has such a view:
// functions that take a view refuse it with INVALID_ARGUMENT.
class GroupView {
  public:
    GroupView() = default;

    static constexpr std::size_t members_max = 1u << 20;
    static constexpr std::uint32_t rank_max = 0xfffffffe;
    static constexpr std::size_t name_bytes_max = 256;
    static constexpr std::size_t uris_max = 16;                     // Of one member.
    static constexpr std::size_t uri_bytes_max = members_max * 80;  // Of all members together.

    // Errors: INVALID_ARGUMENT, naming the fault and its place: no name, a name that is not UTF-8,
    // no members, a repeated rank, a member without an address or with a malformed one, one address
    // of two ranks, more than the limits above.
    static Result<GroupView> make(std::string name, std::uint64_t epoch,
                                  std::vector<Member> members);
    // From the JSON of a group file: {"name":"…","epoch":1,"members":[{"rank":0,"uris":["…"]}]};
    // a member may have "incarnation" and "draining".
    static Result<GroupView> parse(std::string_view json);
    // A file that changes while it is read, or is malformed and was written to within the last
    // second, is read up to three times within 20 ms. A file that its writer replaces by renaming
    // is never read half-written. Errors, naming the file: NOT_FOUND, PERMISSION_DENIED, ABORTED
    // (it changed each time), else as parse().
    static Result<GroupView> load(const std::string& path);
    // The JSON that parse() takes.
    std::string to_json() const;
    // For messages between members. Errors of decode(): INVALID_ARGUMENT.
    std::string encode() const;
    static Result<GroupView> decode(std::string_view bytes);

    const std::string& name() const { return data().name; }
    std::uint64_t epoch() const { return data().epoch; }
    std::uint32_t size() const { return static_cast<std::uint32_t>(data().members.size()); }
    const std::vector<Member>& members() const { return data().members; }
    // By index. Requires: index < size(); anything else aborts the program with a message.
    const Member& at(std::uint32_t index) const {
        if (index >= size()) detail::refuse_index("GroupView::at()", index, size());
        return data().members[index];
    }
    // nullptr: no such member. Cost: a search; none where ranks are 0 to n-1.
    const Member* find(std::uint32_t rank) const;
    // Equal for equal views, in every process.
    std::uint64_t digest() const { return data().digest; }

  private:
    struct Data {
        std::string name;
        std::uint64_t epoch = 0;
        std::vector<Member> members;
        std::uint64_t digest = 0;
    };
    explicit GroupView(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
    static const Data& none();
    const Data& data() const { return data_ ? *data_ : none(); }

    std::shared_ptr<const Data> data_;  // nullptr: empty.
};

// The change of one member between a view and a later one.
struct MemberChange {
    enum class Cause : std::uint8_t {
        joined,
        restarted,  // The same rank in another incarnation.
        moved,      // The same incarnation at other addresses.
        draining,   // Also after `joined` or `restarted`.
        left,
        resumed,  // Not draining any more, in the same incarnation.
    };
    std::uint64_t epoch = 0;  // Of the later view.
    std::uint32_t rank = 0;
    std::uint64_t incarnation = 0;  // With `left`: of the member that left.
    Cause cause = Cause::joined;
    friend bool operator==(const MemberChange&, const MemberChange&) = default;
};
std::string_view name_of(MemberChange::Cause cause);  // "joined"

// In order of rank, with at most two changes for one rank: `moved` precedes `draining` and
// `resumed`. Requires: both views have one name; anything else aborts the program with a message.
std::vector<MemberChange> changes_between(const GroupView& before, const GroupView& after);

// ---- the next view: RESOURCE_EXHAUSTED when there is no later epoch

// The next epoch's view without these ranks. Errors: NOT_FOUND: a rank is no member;
// INVALID_ARGUMENT: no rank is given; FAILED_PRECONDITION: no member would remain.
Result<GroupView> evict(const GroupView& view, std::uint32_t rank);
Result<GroupView> evict(const GroupView& view, const RankSet& ranks);
// The next epoch's view in which these ranks are draining. Errors: NOT_FOUND, INVALID_ARGUMENT
// likewise.
Result<GroupView> drain(const GroupView& view, std::uint32_t rank);
Result<GroupView> drain(const GroupView& view, const RankSet& ranks);
// The next epoch's view with this member; without an incarnation it gets that epoch. Errors:
// ALREADY_EXISTS: the rank is a member, and must leave first or have a later incarnation; else as
// make().
Result<GroupView> admit(const GroupView& view, Member member);

}  // namespace weft
