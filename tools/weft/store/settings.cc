// `weft set`, `weft show`: a setting on every member of a group, one outcome per rank.
#include <cstdio>

#include "base/text.h"
#include "cli/number.h"
#include "cli/text.h"
#include "cli/topology.h"
#include "commands.h"
#include "storage/name.h"
#include "storage/settings.h"
#include "store/session.h"

namespace weft::tool {

namespace {

struct SettingOptions {
    std::string group;
    std::vector<std::string> servers;
    std::string key;
    std::string value;
    Topology topology;
    bool versions = false;
};

// The reply of one member or one server.
struct MemberSetting {
    std::uint32_t rank = 0;
    Status status;
    std::string value;
    std::string version;
};

struct MemberChannel {
    std::uint32_t rank = 0;
    Result<Channel> channel;
};

// Calls all members at once, so that all dead members together cost one timeout.
Task<std::vector<MemberSetting>> query_members(std::vector<MemberChannel> member_channels,
                                               std::string key) {
    using Call = ProtoCall<storage::Setting>;
    storage::GetConfigRequest request;
    request.set_key(key);
    std::vector<std::unique_ptr<Call>> calls(member_channels.size());
    for (std::size_t i = 0; i < member_channels.size(); ++i) {
        if (!member_channels[i].channel) continue;
        calls[i] =
            std::make_unique<Call>(*member_channels[i].channel, storage::StoreMethods::GetConfig,
                                   request, CallOptions{.timeout = call_timeout});
    }
    std::vector<MemberSetting> settings;
    for (std::size_t i = 0; i < member_channels.size(); ++i) {
        MemberSetting answer{member_channels[i].rank, member_channels[i].channel.status(), "", ""};
        if (calls[i]) {
            Call& call = *calls[i];
            const Result<storage::Setting> setting = co_await call;
            answer.status = setting.status();
            if (setting) {
                answer.value = setting->value();
                answer.version = storage::to_string(setting->version());
            }
        }
        settings.push_back(std::move(answer));
    }
    co_return settings;
}

Json to_json(const MemberSetting& answer) {
    Json json;
    json["rank"] = answer.rank;
    json["value"] = answer.status.ok() ? Json(answer.value) : Json(nullptr);
    json["version"] = answer.status.ok() ? Json(answer.version) : Json(nullptr);
    json["error"] = answer.status.ok() ? Json(nullptr) : tool::to_json(answer.status);
    return json;
}

std::string suffix(const SettingOptions& options, const MemberSetting& answer) {
    return options.versions ? "  (version " + answer.version + ")" : "";
}

// A line per rank; returns the first failure.
Status report(const SettingOptions& options, const std::vector<MemberSetting>& settings,
              Invocation& invocation) {
    Status first;
    Json json;
    json["key"] = options.key;
    json["ranks"] = Json::array();
    for (const MemberSetting& answer : settings) {
        if (first.ok() && !answer.status.ok()) {
            first = Status(answer.status).in("rank " + std::to_string(answer.rank));
        }
        if (invocation.json) {
            json["ranks"].push_back(to_json(answer));
        } else if (answer.status.ok()) {
            std::printf("rank %u: OK, %s = %s%s\n", answer.rank,
                        base::printable(options.key).c_str(), base::printable(answer.value).c_str(),
                        suffix(options, answer).c_str());
        } else {
            std::printf("rank %u: %s\n", answer.rank,
                        base::printable(answer.status.to_string()).c_str());
        }
    }
    if (invocation.json) invocation.answer = std::move(json);
    return first;
}

Status validate_text(const char* what, const std::string& text) {
    if (storage::is_utf8(text)) return {};
    return fail(Code::invalid_argument,
                std::string("the ") + what + " " + storage::quote(text) + " is not UTF-8");
}

Status set(const SettingOptions& options, Invocation& invocation) {
    if (Status status = validate_text("key", options.key); !status.ok()) return status;
    if (Status status = validate_text("value", options.value); !status.ok()) return status;
    Result<GroupView> view = GroupView::load(options.group);
    if (!view) return std::move(view).status();
    Result<Runtime> runtime = Runtime::create();
    if (!runtime) return std::move(runtime).status();
    Result<Group> group = runtime->group(*view);
    if (!group) return std::move(group).status();
    const Result<storage::SetResult> outcome = runtime->block_on(
        storage::set_everywhere(*group, options.key, options.value,
                                {.timeout = call_timeout, .topology = options.topology}));
    if (!outcome) return outcome.status();
    std::vector<MemberSetting> settings;
    for (const auto& [rank, status] : outcome->ranks) {
        settings.push_back({rank, status, options.value, storage::to_string(outcome->version)});
    }
    return report(options, settings, invocation);
}

Status show_one(const SettingOptions& options, Invocation& invocation) {
    Result<Session> session = Session::open(options.servers);
    if (!session) return std::move(session).status();
    const std::vector<MemberSetting> settings =
        session->runtime.block_on(query_members({{0, session->channel}}, options.key));
    if (!settings[0].status.ok()) return settings[0].status;
    if (invocation.json) {
        invocation.answer = {
            {"key", options.key}, {"value", settings[0].value}, {"version", settings[0].version}};
    } else {
        std::printf("%s%s\n", base::printable(settings[0].value).c_str(),
                    suffix(options, settings[0]).c_str());
    }
    return {};
}

Status show(const SettingOptions& options, Invocation& invocation) {
    if (Status status = validate_text("key", options.key); !status.ok()) return status;
    if (!options.servers.empty()) return show_one(options, invocation);
    Result<GroupView> view = GroupView::load(options.group);
    if (!view) return std::move(view).status();
    Result<Runtime> runtime = Runtime::create();
    if (!runtime) return std::move(runtime).status();
    std::vector<MemberChannel> members;
    for (const Member& member : view->members()) {
        members.push_back({member.rank, runtime->connect(member.uris)});
    }
    return report(options, runtime->block_on(query_members(std::move(members), options.key)),
                  invocation);
}

void add_versions_option(CLI::App& command, SettingOptions& options) {
    command.add_flag("--versions", options.versions,
                     "Print the version as well (with --json it always is)");
}

}  // namespace

void set_up_set(CLI::App& command, Invocation& invocation) {
    auto options = std::make_shared<SettingOptions>();
    command.description("Broadcast a setting to every member of a group");
    command.footer(
        "Prints a line per rank; the exit status is the first failure's. Servers keep settings in "
        "memory. Of several at once the latest version stays everywhere; a member that has it "
        "fails the others with FAILED_PRECONDITION.\nExample: weft set --group store.json "
        "cache_bytes "
        "4194304");
    command.add_option("--group", options->group, "The group's file")
        ->check(not_empty())
        ->required();
    add_topology_options(command, options->topology);
    command.add_option("key", options->key, "Up to 256 bytes")->required();
    command.add_option("value", options->value, "Up to 4096 bytes")->required();
    add_versions_option(command, *options);
    command.callback([options, &invocation] { invocation.status = set(*options, invocation); });
}

void set_up_show(CLI::App& command, Invocation& invocation) {
    auto options = std::make_shared<SettingOptions>();
    command.description("Read a setting from one server, or from each member of a group");
    CLI::Option_group* from = command.add_option_group("source");
    from->add_option("--group", options->group, "The group's file")->check(not_empty());
    add_server_option(*from, options->servers, false);
    from->require_option(1);
    command.add_option("key", options->key, "The setting")->required();
    add_versions_option(command, *options);
    command.callback([options, &invocation] { invocation.status = show(*options, invocation); });
}

}  // namespace weft::tool
