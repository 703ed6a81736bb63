// `weft group ls`: the members of a group, and whether they reply.
#include <cstdio>
#include <optional>

#include <weft/group_authority.h>

#include "base/text.h"
#include "cli/number.h"
#include "cli/text.h"
#include "group/group.h"
#include "group/probe.h"

namespace weft::tool {

namespace {

struct LsOptions {
    std::string group;
    bool probe = false;
    Duration timeout = 1s;
};

using ProbeResults = std::optional<std::vector<ProbeResult>>;  // None: not probed.

const char* state_of(const Member& member) { return member.draining ? "draining" : "active"; }

Json members_as_json(const GroupView& view, const ProbeResults& results) {
    Json json;
    json["name"] = view.name();
    json["epoch"] = view.epoch();
    json["members"] = Json::array();
    for (std::uint32_t index = 0; index < view.size(); ++index) {
        const Member& member = view.at(index);
        Json one;
        one["rank"] = member.rank;
        one["incarnation"] = member.incarnation;
        one["state"] = state_of(member);
        one["uris"] = member.uris;
        if (results) {
            const ProbeResult& answer = (*results)[index];
            const bool answered = answer.status.ok();
            one["answered_ns"] = answered ? Json(answer.trip.count()) : Json(nullptr);
            one["error"] = answered ? Json(nullptr) : tool::to_json(answer.status);
        }
        json["members"].push_back(std::move(one));
    }
    return json;
}

std::string text_for(const ProbeResult& answer) {
    if (!answer.status.ok()) return std::string(name_of(answer.status.code()));
    return format_ns(static_cast<double>(answer.trip.count()));
}

void print_table(const GroupView& view, const ProbeResults& results) {
    std::printf("group %s, epoch %llu, %u member%s\n", base::printable(view.name()).c_str(),
                static_cast<unsigned long long>(view.epoch()), view.size(),
                view.size() == 1 ? "" : "s");
    std::vector<std::string> heads = {"rank", "incarnation", "state"};
    if (results) heads.push_back("answer");
    heads.push_back("addresses");
    Table table(heads);
    table.flush_left(2);
    table.flush_left(heads.size() - 1);
    for (std::uint32_t index = 0; index < view.size(); ++index) {
        const Member& member = view.at(index);
        std::vector<std::string> row = {std::to_string(member.rank),
                                        std::to_string(member.incarnation), state_of(member)};
        if (results) row.push_back(text_for((*results)[index]));
        row.push_back(join(member.uris));
        table.add(std::move(row));
    }
    std::fputs(table.text().c_str(), stdout);
}

// The first failure in order of rank.
Status first_failure(const GroupView& view, const ProbeResults& results) {
    if (!results) return {};
    for (std::uint32_t index = 0; index < view.size(); ++index) {
        const Status& status = (*results)[index].status;
        if (!status.ok()) return Status(status).in("rank " + std::to_string(view.at(index).rank));
    }
    return {};
}

Status ls(const LsOptions& options, Invocation& invocation) {
    const Result<GroupView> view = group_file(options.group)->view();
    if (!view) return view.status();
    ProbeResults results;
    if (options.probe) {
        Result<std::vector<ProbeResult>> asked = probe(*view, options.timeout, !invocation.json);
        if (!asked) return std::move(asked).status();
        results = *std::move(asked);
    }
    if (invocation.json) {
        invocation.answer = members_as_json(*view, results);
    } else {
        print_table(*view, results);
    }
    return first_failure(*view, results);
}

}  // namespace

void set_up_group_ls(CLI::App& command, Invocation& invocation) {
    auto options = std::make_shared<LsOptions>();
    command.description("List the members of a group");
    command.footer(
        "With --probe it prints how long each member took to reply, and the exit status is the "
        "first "
        "failure's.\nExample: weft group ls --group store.json --probe");
    add_group_option(command, options->group);
    CLI::Option* probe =
        command.add_flag("--probe", options->probe, "Check that each member replies");
    command
        .add_option_function<std::string>(
            "--timeout",
            [options](const std::string& value) { options->timeout = *parse_duration(value); },
            "--probe: limit for each reply")
        ->check(time_span(1us, time_span_max))
        ->default_str("1s")
        ->needs(probe);
    command.callback([options, &invocation] { invocation.status = ls(*options, invocation); });
}

}  // namespace weft::tool
