// Messages of member collectives. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <weft/group.h>

namespace weft::coll {

// Names the member collective and its round. In front of each message.
struct MemberCollectiveHeader {
    static constexpr std::size_t name_bytes_max = 256;

    std::uint64_t group = 0;  // method_hash of the group's name.
    std::uint64_t epoch = 0;  // Of the leader's view.
    std::uint64_t round = 0;  // The leader's, random; 0: not known yet.
    std::uint32_t leader = 0;
    std::string_view name;
};
std::vector<std::byte> encode(const MemberCollectiveHeader& header);
// Errors: INVALID_ARGUMENT: too short, or a name that is too long; `payload`: the bytes that
// follow.
Result<MemberCollectiveHeader> decode_member_collective_header(ByteView bytes, ByteView* payload);

// The outcome of a member collective. nullopt: it exceeds `bytes_max`.
std::optional<std::vector<std::byte>> encode_outcome(const GroupOutcome& outcome, bool is_merged,
                                                     std::size_t bytes_max);
// `view`: the receiver's; incarnations are 0 if the outcome is of another view. Errors:
// INVALID_ARGUMENT: also for more successful ranks than four times its members, and 4096.
Result<GroupOutcome> decode_outcome(ByteView bytes, const GroupView& view);

// The leader's reply to a probe.
struct ProbeReply {
    enum class State : std::uint8_t {
        waiting,    // The probe names no round yet.
        active,     // The round is under way.
        completed,  // The round has ended; the outcome follows.
        unknown,    // The leader does not know the round.
    };
    State state = State::waiting;
    ByteView outcome;
};
std::vector<std::byte> encode(const ProbeReply& probe_reply);
// Errors: INVALID_ARGUMENT.
Result<ProbeReply> decode_probe_reply(ByteView bytes);

}  // namespace weft::coll
