// config_server GROUP RANK: a member of the group file's group that receives configurations, until
// SIGTERM.
#include <iostream>

#include <weft/group_authority.h>
#include <weft/runtime.h>

#include "config.weft.h"

using namespace weft;

struct Config final : demo::ConfigService {
    demo::Version held;

    Status Push(Call&, const demo::Version& in, demo::Taken& out) override {
        // Pushes are not ordered: of two concurrent pushes the later version stays, in whatever
        // order they arrive. The text decides between equal numbers.
        const bool is_older = in.number() < held.number() ||
                              (in.number() == held.number() && in.text() < held.text());
        if (is_older) {
            return rejected(Code::failed_precondition,
                            "version " + std::to_string(held.number()) + " is here");
        }
        out.set_before(held.number());
        held = in;
        std::cout << "version " << in.number() << ": " << in.text() << std::endl;
        return {};
    }
};

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: config_server GROUP RANK\n", 64;
    const std::unique_ptr<GroupAuthority> authority = group_file(argv[1]);
    const GroupView view = authority->view().value();
    const auto rank = static_cast<std::uint32_t>(std::stoul(argv[2]));
    if (!view.find(rank) || std::to_string(rank) != argv[2]) {
        return std::cerr << "no such rank: " << argv[2] << '\n', 64;
    }
    Config config;  // The service outlives the runtime that serves it.
    Runtime runtime = Runtime::create().value();
    Status status = runtime.join(view, rank);
    if (status.ok()) status = runtime.serve(config, view.find(rank)->uris);
    // Members that join or leave later appear in the group's file.
    const std::unique_ptr<GroupAuthority> follower = group_file(argv[1]);
    if (status.ok()) {
        const Group group = runtime.group(view).value();
        status =
            follower->follow([group](const GroupView& later) { (void)group.install(later); }, {});
    }
    if (status.ok()) std::cout << "rank " << rank << " is there" << std::endl;
    if (status.ok()) status = runtime.run();
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
