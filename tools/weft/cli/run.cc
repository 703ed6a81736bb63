#include "cli/run.h"

#include <fcntl.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <string>
#include <system_error>

#include <google/protobuf/stubs/logging.h>

#include "base/internal_thread.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/separate_program.h"
#include "cli/text.h"

namespace weft::tool {

namespace {

constexpr int usage_error = 64;  // EX_USAGE of sysexits.h.

// The next opened file would take the number of a closed standard descriptor, and output would go
// to that file. The replacement refuses the missing descriptor's operation: reading or writing.
void fill_standard_descriptors() {
    for (int fd = 0; fd <= 2; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0) continue;
        const int got = ::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
        if (got < 0) std::_Exit(static_cast<int>(Code::failed_precondition));
    }
}

bool asks_for_json(int argc, char** argv) {
    return std::any_of(argv, argv + argc,
                       [](const char* argument) { return std::string_view(argument) == "--json"; });
}

void print_usage_error(const CLI::App& app, const std::string& why, bool json) {
    std::string command = "weft";
    for (const CLI::App* sub = &app; !sub->get_subcommands().empty();) {
        sub = sub->get_subcommands().front();
        command += " " + sub->get_name();
    }
    const std::string text = base::printable(why) + "; see '" + command + " --help'";
    std::fprintf(stderr, "weft: %s\n", text.c_str());
    if (!json) return;
    Json error = to_json(Status(Code::invalid_argument, text));
    error["code"] = "USAGE";
    error["number"] = usage_error;
    print({{"error", error}});
}

// The subcommand of `in` with this name.
const CLI::App* find_command(const CLI::App& in, std::string_view name) {
    const auto all = in.get_subcommands([](const CLI::App*) { return true; });
    const auto at = std::find_if(all.begin(), all.end(),
                                 [&](const CLI::App* sub) { return sub->get_name() == name; });
    return at == all.end() ? nullptr : *at;
}

std::string why_refused(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
    const CLI::App* in = &app;
    std::string path;
    for (char** word = argv + 1; word != argv + argc && in->get_require_subcommand_min() > 0;
         ++word) {
        if ((*word)[0] == '-') continue;
        path += (path.empty() ? "" : " ") + std::string(*word);
        in = find_command(*in, *word);
        if (!in) return "there is no command '" + path + "'";
    }
    return error.what();
}

// A failed write of the output fails the command, unless it has failed before.
void check_output(Invocation& invocation) {
    const Status lost = flush_output();
    if (lost.ok() || invocation.status.text() == lost.text()) return;  // Or print_end() printed it.
    std::fprintf(stderr, "weft: %s\n", lost.to_string().c_str());
    if (invocation.status.ok()) invocation.status = lost;
}

const NamedCommand* find_separate(std::span<const NamedCommand> commands, int argc, char** argv) {
    if (argc < 2) return nullptr;
    const auto at =
        std::find_if(commands.begin(), commands.end(), [&](const NamedCommand& command) {
            return command.is_separate && std::string_view(command.name) == argv[1];
        });
    return at == commands.end() ? nullptr : &*at;
}

int parse_and_run(std::span<const NamedCommand> commands, int argc, char** argv) {
    fill_standard_descriptors();
    open_output();
    Invocation invocation;
    if (const NamedCommand* separate = find_separate(commands, argc, argv)) {
        invocation.json = asks_for_json(argc, argv);
        invocation.status = become_program(separate->name, argv);
        std::signal(SIGPIPE, SIG_IGN);
        print_end(invocation);
        check_output(invocation);
        return static_cast<int>(invocation.status.code());
    }
    // protobuf's log of malformed bytes and names is off: weft reports these errors itself.
    google::protobuf::SetLogHandler(nullptr);
    // A closed pipe is an error of write(), not the end of this process.
    std::signal(SIGPIPE, SIG_IGN);
    CLI::App app("weft: RPC, bulk transfer and collectives over any network", "weft");
    app.set_version_flag("--version", "weft " WEFT_VERSION);
    app.require_subcommand(1);
    for (const NamedCommand& command : commands) {
        CLI::App* sub = app.add_subcommand(command.name);
        sub->add_flag("--json", invocation.json, "Print one JSON object instead of text");
        command.set_up(*sub, invocation);
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() != 0) {
            print_usage_error(app, why_refused(app, error, argc, argv), asks_for_json(argc, argv));
            return usage_error;
        }
        std::ostringstream text;
        app.exit(error, text, text);  // --help, --version.
        std::fputs(text.str().c_str(), stdout);
    }
    print_end(invocation);
    check_output(invocation);
    return static_cast<int>(invocation.status.code());
}

}  // namespace

int run(std::span<const NamedCommand> commands, int argc, char** argv) {
    try {
        return parse_and_run(commands, argc, argv);
    } catch (const std::system_error& error) {
        const bool has_no_thread = error.code() == std::errc::resource_unavailable_try_again;
        const std::string why = has_no_thread ? "no thread (" + base::thread_limits_text() + ")"
                                              : base::printable(error.what());
        std::fprintf(stderr, "weft: %s\n", why.c_str());
        return static_cast<int>(has_no_thread ? Code::resource_exhausted : Code::internal);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "weft: %s\n", base::printable(error.what()).c_str());
        return static_cast<int>(Code::internal);
    }
}

}  // namespace weft::tool
