// Views as bytes between members: the message GroupFile of weft/group.proto.
//
// It is decoded field by field into the members and nothing else: protobuf's own parser would
// allocate an object for each empty member, which takes two bytes.
#include <weft/group_view.h>

#include <weft/group.pb.h>

#include "group/limits.h"

namespace weft {

namespace {

// The key in front of a field: its number and its wire type.
constexpr std::uint64_t number_field(int field) { return static_cast<std::uint64_t>(field) << 3; }
constexpr std::uint64_t text_field(int field) { return number_field(field) | 2; }

class Fields {
  public:
    explicit Fields(std::string_view bytes) : rest_(bytes) {}

    bool is_empty() const { return rest_.empty(); }
    bool take(std::uint64_t& number) {
        number = 0;
        for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
            const auto byte = static_cast<unsigned char>(rest_.front());
            rest_.remove_prefix(1);
            if (shift == 63 && byte > 1) return false;
            number |= std::uint64_t{byte & 0x7fu} << shift;
            if (byte < 0x80) return true;
        }
        return false;
    }
    bool take(std::string_view& text) {
        std::uint64_t bytes = 0;
        if (!take(bytes) || bytes > rest_.size()) return false;
        text = rest_.substr(0, bytes);
        rest_.remove_prefix(bytes);
        return true;
    }

  private:
    std::string_view rest_;
};

}  // namespace

static Status no_view(std::string why) {
    return fail(Code::invalid_argument, "encoded group: " + std::move(why));
}

static Result<Member> decode_member(std::string_view bytes) {
    using Message = GroupFile::Member;
    Member member;
    std::uint64_t key = 0, rank = 0, draining = 0;
    bool has_rank = false;
    Fields fields(bytes);
    while (!fields.is_empty()) {
        if (!fields.take(key)) return no_view("a member is cut off");
        bool is_whole = false;
        std::string_view uri;
        switch (key) {
            case number_field(Message::kRankFieldNumber):
                is_whole = has_rank = fields.take(rank);
                break;
            case text_field(Message::kUrisFieldNumber):
                is_whole = fields.take(uri);
                if (member.uris.size() == GroupView::uris_max) {
                    return no_view("too many addresses");
                }
                if (uri.size() > group::uri_bytes_max) return no_view("too long an address");
                member.uris.emplace_back(uri);
                break;
            case number_field(Message::kIncarnationFieldNumber):
                is_whole = fields.take(member.incarnation);
                break;
            case number_field(Message::kDrainingFieldNumber):
                is_whole = fields.take(draining);
                break;
            default: return no_view("an unknown field of a member");
        }
        if (!is_whole) return no_view("a member is cut off");
    }
    if (!has_rank) return no_view("a member without a rank");
    if (rank > UINT32_MAX) return no_view("a rank of more than 32 bits");
    if (draining > 1) return no_view("a member that is draining and is not");
    member.rank = static_cast<std::uint32_t>(rank);
    member.draining = draining == 1;
    return member;
}

Result<GroupView> GroupView::decode(std::string_view bytes) {
    if (bytes.size() > group::view_bytes_max) return no_view("too large");
    std::string_view name, encoded;
    std::uint64_t key = 0, epoch = 0;
    bool has_epoch = false;
    std::vector<Member> members;
    Fields fields(bytes);
    while (!fields.is_empty()) {
        if (!fields.take(key)) return no_view("it is cut off");
        bool is_whole = false;
        switch (key) {
            case text_field(GroupFile::kNameFieldNumber): is_whole = fields.take(name); break;
            case number_field(GroupFile::kEpochFieldNumber):
                is_whole = has_epoch = fields.take(epoch);
                break;
            case text_field(GroupFile::kMembersFieldNumber): {
                is_whole = fields.take(encoded);
                if (!is_whole) break;
                if (members.size() == members_max) return no_view("too many members");
                Result<Member> member = decode_member(encoded);
                if (!member) return std::move(member).status();
                members.push_back(*std::move(member));
                break;
            }
            default: return no_view("an unknown field");
        }
        if (!is_whole) return no_view("it is cut off");
    }
    if (!has_epoch) return no_view("no epoch");
    if (name.size() > name_bytes_max) return no_view("too long a name");
    return make(std::string(name), epoch, std::move(members));
}

std::string GroupView::encode() const {
    GroupFile file;
    file.set_name(name());
    file.set_epoch(epoch());
    for (const Member& member : members()) {
        GroupFile::Member& to = *file.add_members();
        to.set_rank(member.rank);
        for (const std::string& uri : member.uris) to.add_uris(uri);
        if (member.incarnation != 0) to.set_incarnation(member.incarnation);
        if (member.draining) to.set_draining(true);
    }
    return file.SerializeAsString();
}

}  // namespace weft
