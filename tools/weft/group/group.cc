#include "group/group.h"

#include "base/text.h"
#include "cli/number.h"
#include "commands.h"

namespace weft::tool {

namespace {

struct Command {
    const char* name;
    SetUp set_up;
};

constexpr Command commands[] = {
    {"ls", set_up_group_ls},       {"watch", set_up_group_watch}, {"evict", set_up_group_evict},
    {"drain", set_up_group_drain}, {"admit", set_up_group_admit}, {"tree", set_up_group_tree},
};

// Empty for a member that left.
std::vector<std::string> uris_of(const MemberChange& change, const GroupView& after) {
    const Member* const member = after.find(change.rank);
    return member ? member->uris : std::vector<std::string>();
}

}  // namespace

void add_group_option(CLI::App& command, std::string& file) {
    command.add_option("--group", file, "The group's file")->check(not_empty())->required();
}

std::string join(const std::vector<std::string>& uris) {
    std::string text;
    for (const std::string& uri : uris) text += (text.empty() ? "" : " ") + uri;
    return base::printable(text);
}

Json json_of(const MemberChange& change, const GroupView& after) {
    Json json;
    json["epoch"] = change.epoch;
    json["rank"] = change.rank;
    json["incarnation"] = change.incarnation;
    json["cause"] = name_of(change.cause);
    json["uris"] = uris_of(change, after);
    return json;
}

std::string line_for(const MemberChange& change, const GroupView& after) {
    const std::string uris = join(uris_of(change, after));
    return "epoch " + std::to_string(change.epoch) + ": rank " + std::to_string(change.rank) +
           " incarnation " + std::to_string(change.incarnation) + " " +
           std::string(name_of(change.cause)) + (uris.empty() ? "" : " " + uris);
}

void set_up_group(CLI::App& command, Invocation& invocation) {
    command.description("Show the members of a group, and change them");
    command.footer("Example: weft group ls --group store.json --probe");
    command.require_subcommand(1);
    for (const Command& below : commands) {
        CLI::App* sub = command.add_subcommand(below.name);
        sub->add_flag("--json", invocation.json, "Print one JSON object instead of text");
        below.set_up(*sub, invocation);
    }
}

}  // namespace weft::tool
