// `weft`: the command. Exit status: the number of the status code (0 is OK), 64 for wrong usage.
#include <csignal>
#include <cstdio>
#include <exception>

#include "commands.h"

namespace weft::tool {

namespace {

struct Command {
    const char* name;
    SetUp set_up;
};

constexpr Command commands[] = {
    {"info", set_up_info}, {"ping", set_up_ping}, {"perf", set_up_perf}, {"serve", set_up_serve},
    {"put", set_up_put},   {"get", set_up_get},   {"ls", set_up_ls},     {"stat", set_up_stat},
    {"rm", set_up_rm},     {"set", set_up_set},   {"show", set_up_show},
};

constexpr int usage_error = 64;  // EX_USAGE of sysexits.h.

int run(int argc, char** argv) {
    // A reader that went away is an error of write(), not the end of this process.
    std::signal(SIGPIPE, SIG_IGN);
    Invocation invocation;
    CLI::App app("weft: RPC, bulk transfer and collectives over any network", "weft");
    app.set_version_flag("--version", "weft " WEFT_VERSION);
    app.require_subcommand(1);
    for (const Command& command : commands) {
        CLI::App* sub = app.add_subcommand(command.name);
        sub->add_flag("--json", invocation.json, "Print one JSON object instead of text");
        command.set_up(*sub, invocation);
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        const bool asked_for_help = app.exit(error) == 0;
        return asked_for_help ? 0 : usage_error;
    }
    if (!invocation.status.ok()) print_failure(invocation);
    std::fflush(stdout);
    return static_cast<int>(invocation.status.code());
}

}  // namespace

}  // namespace weft::tool

int main(int argc, char** argv) {
    try {
        return weft::tool::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "weft: %s\n", error.what());
        return static_cast<int>(weft::Code::internal);
    }
}
