// `weft serve`: a directory as a store of objects, alone or as one rank of a group.
#include <csignal>
#include <cstdio>
#include <optional>

#include <weft/group_authority.h>
#include <weft/runtime.h>

#include "base/text.h"
#include "cli/number.h"
#include "cli/output.h"
#include "commands.h"
#include "storage/service.h"

namespace weft::tool {

namespace {

struct ServeOptions {
    std::string root;
    std::vector<std::string> listen;
    std::string group;
    std::uint32_t rank = 0;
    std::string journal;
    unsigned contexts = 1;
};

// Called before the first thread starts, so that no signal is lost between the first line of output
// and run(), which waits for signals.
void block_stop_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    // A file over the process's size limit is an error of write(), not the end of the server.
    ::signal(SIGXFSZ, SIG_IGN);
}

Status print_start(const ServeOptions& options, const Runtime& runtime, bool json) {
    const std::vector<std::string> addresses = runtime.addresses();
    if (json) {
        Json object;
        object["listening"] = addresses;
        object["root"] = options.root;
        print(object);
    } else {
        for (const std::string& uri : addresses) std::printf("listening on %s\n", uri.c_str());
    }
    return flush_output();
}

void print_removed(std::size_t removed) {
    if (removed == 0) return;
    std::fprintf(stderr, "weft: removed %zu unfinished object%s of an earlier server\n", removed,
                 removed == 1 ? "" : "s");
}

// Installs later views from the file, for the lifetime of the returned object.
Result<std::unique_ptr<GroupAuthority>> follow(const std::string& file, const Group& group) {
    std::unique_ptr<GroupAuthority> authority = group_file(file);
    const Status status = authority->follow(
        [group](const GroupView& view) {
            if (view.epoch() <= group.view().epoch()) return;  // The view of join().
            const std::string epoch = std::to_string(view.epoch());
            const Status installed = group.install(view);
            std::fprintf(stderr, "weft: the group is in epoch %s%s%s\n", epoch.c_str(),
                         installed.ok() ? "" : ", which can't be installed: ",
                         installed.ok() ? "" : base::printable(installed.to_string()).c_str());
        },
        [](const Status& why) {
            if (!why.ok()) {
                std::fprintf(stderr, "weft: %s\n", base::printable(why.to_string()).c_str());
            }
        });
    if (!status.ok()) return status;
    return authority;
}

Status serve(const ServeOptions& options, bool json) {
    std::optional<GroupView> view;
    if (!options.group.empty()) {
        Result<GroupView> loaded = GroupView::load(options.group);
        if (!loaded) return std::move(loaded).status();
        view = *std::move(loaded);
    }
    block_stop_signals();
    Result<Runtime> runtime =
        Runtime::create({.contexts = options.contexts, .state_signal = SIGUSR1});
    if (!runtime) return std::move(runtime).status();
    Result<std::shared_ptr<storage::SharedStore>> shared =
        storage::SharedStore::open(options.root, options.journal);
    if (!shared) return std::move(shared).status();
    print_removed((*shared)->root.removed_unfinished());
    const auto make = [&](const Here&) {
        return std::make_unique<storage::Store>(*runtime, *shared);
    };
    if (Status status = runtime->add(make); !status.ok()) return status;
    // Joins before it listens, so that it is a member from its first call on.
    std::unique_ptr<GroupAuthority> authority;  // Ends before the runtime does.
    if (view) {
        if (Status status = runtime->join(*view, options.rank); !status.ok()) return status;
        Result<Group> group = runtime->group(*view);
        if (!group) return std::move(group).status();
        Result<std::unique_ptr<GroupAuthority>> followed = follow(options.group, *group);
        if (!followed) return std::move(followed).status();
        authority = *std::move(followed);
    }
    for (const std::string& uri : options.listen) {
        if (Status status = runtime->listen(uri); !status.ok()) return status;
    }
    if (Status status = print_start(options, *runtime, json); !status.ok()) return status;
    return runtime->run();
}

}  // namespace

void set_up_serve(CLI::App& command, Invocation& invocation) {
    auto options = std::make_shared<ServeOptions>();
    command.description("Serve a directory as a store of objects until SIGTERM or SIGINT");
    command.footer(
        "Prints a line per address when it is ready. With --group it takes part in the group's "
        "broadcasts, and follows its file.\nExample: weft serve --root /data --listen sm://store "
        "--listen tcp://127.0.0.1:0");
    command.add_option("--root", options->root, "The directory that holds the objects")->required();
    command.add_option("--listen", options->listen, "Addresses to serve on; port 0 picks one")
        ->required();
    command
        .add_option("--journal", options->journal,
                    "A file that gets a line before each object is stored or deleted")
        ->check(not_empty());
    command
        .add_option("--contexts", options->contexts,
                    "Threads that serve, each its own connections; 0: one for each cpu")
        ->transform(whole_number(0, 64))
        ->capture_default_str();
    CLI::Option* group =
        command.add_option("--group", options->group, "The group's file")->check(not_empty());
    CLI::Option* rank =
        command.add_option("--rank", options->rank, "The rank of this server in the group")
            ->transform(rank_number());
    group->needs(rank);
    rank->needs(group);
    command.callback(
        [options, &invocation] { invocation.status = serve(*options, invocation.json); });
}

}  // namespace weft::tool
