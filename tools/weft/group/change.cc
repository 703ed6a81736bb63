// `weft group evict`, `drain`, `admit`: the next view of a group.
#include <cstdio>
#include <optional>

#include <weft/group_authority.h>

#include "base/text.h"
#include "cli/number.h"
#include "group/group.h"

namespace weft::tool {

namespace {

struct RankOptions {
    std::string group;
    std::vector<std::uint32_t> ranks;
};

struct AdmitOptions {
    std::string group;
    Member member;
};

void report(const GroupView& before, const GroupView& after, Invocation& invocation) {
    const std::vector<MemberChange> changes = changes_between(before, after);
    if (invocation.json) {
        Json json;
        json["name"] = after.name();
        json["epoch"] = after.epoch();
        json["members"] = after.size();
        json["changes"] = Json::array();
        for (const MemberChange& change : changes)
            json["changes"].push_back(json_of(change, after));
        invocation.answer = std::move(json);
        return;
    }
    for (const MemberChange& change : changes) {
        std::printf("%s\n", line_for(change, after).c_str());
    }
    if (changes.empty()) {
        std::printf("epoch %llu: nothing to change\n",
                    static_cast<unsigned long long>(after.epoch()));
    }
}

Status change(const std::string& file, const GroupAuthority::Decision& decision,
              Invocation& invocation) {
    std::optional<GroupView> before;
    const Result<GroupView> after = group_file(file)->change([&](const GroupView& view) {
        before = view;
        return decision(view);
    });
    if (!after) return after.status();
    report(*before, *after, invocation);
    return {};
}

RankSet set_of(const std::vector<std::uint32_t>& ranks) {
    RankSet set;
    for (const std::uint32_t rank : ranks) set.add(rank);
    return set;
}

Status evict_ranks(const RankOptions& options, Invocation& invocation) {
    const auto decision = [&](const GroupView& view) { return evict(view, set_of(options.ranks)); };
    return change(options.group, decision, invocation);
}

Status drain_ranks(const RankOptions& options, Invocation& invocation) {
    const RankSet ranks = set_of(options.ranks);
    const auto decision = [&](const GroupView& view) -> Result<GroupView> {
        Result<GroupView> after = drain(view, ranks);
        // Members that are already draining need no new epoch.
        if (after && changes_between(view, *after).empty()) return view;
        return after;
    };
    return change(options.group, decision, invocation);
}

Status admit_member(const AdmitOptions& options, Invocation& invocation) {
    const auto decision = [&](const GroupView& view) { return admit(view, options.member); };
    return change(options.group, decision, invocation);
}

using ChangeRanks = Status (*)(const RankOptions& options, Invocation& invocation);

void set_up_ranks(CLI::App& command, Invocation& invocation, ChangeRanks run) {
    auto options = std::make_shared<RankOptions>();
    add_group_option(command, options->group);
    command.add_option("rank", options->ranks, "Ranks of the group; all or none are changed")
        ->transform(rank_number())
        ->required();
    command.callback(
        [options, run, &invocation] { invocation.status = run(*options, invocation); });
}

}  // namespace

void set_up_group_evict(CLI::App& command, Invocation& invocation) {
    command.description("Take members out of a group");
    command.footer(
        "Prints each change as watch does.\nExample: weft group evict --group store.json 3");
    set_up_ranks(command, invocation, evict_ranks);
}

void set_up_group_drain(CLI::App& command, Invocation& invocation) {
    command.description("Mark members that take part in no new collective");
    command.footer(
        "Prints each change as watch does.\nExample: weft group drain --group store.json 3");
    set_up_ranks(command, invocation, drain_ranks);
}

void set_up_group_admit(CLI::App& command, Invocation& invocation) {
    auto options = std::make_shared<AdmitOptions>();
    command.description("Add a member to a group");
    command.footer(
        "Prints each change as watch does.\n"
        "Example: weft group admit --group store.json --rank 3 --uri tcp://nas-3:7400");
    add_group_option(command, options->group);
    command.add_option("--rank", options->member.rank, "Its rank, which no member has or had")
        ->transform(rank_number())
        ->required();
    command.add_option("--uri", options->member.uris, "Its addresses, in any order")->required();
    command
        .add_option("--incarnation", options->member.incarnation,
                    "Distinguishes processes with the same rank: a later one replaces a member of "
                    "this rank; default: the new epoch")
        ->transform(whole_number(1));
    command.callback(
        [options, &invocation] { invocation.status = admit_member(*options, invocation); });
}

}  // namespace weft::tool
