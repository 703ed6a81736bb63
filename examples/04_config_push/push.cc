// config_push GROUP VERSION TEXT: sends a configuration to every member of the group. The push
// succeeds when more than half of the members have it; the others get it when they can be reached.
#include <iostream>

#include <weft/runtime.h>

#include "config.weft.h"

using namespace weft;

static Task<Status> push(Group group, demo::Version version) {
    const auto taken = co_await demo::ConfigGroupClient(group).Push(version);
    std::cout << taken.ok_count() << " of " << taken.size() << " members have it\n";
    for (const auto& member : taken) {
        if (member.status.ok()) continue;
        std::cout << "rank " << member.rank << ": " << member.status.to_string() << '\n';
    }
    co_return taken.status();
}

int main(int argc, char** argv) try {
    if (argc != 4) return std::cerr << "usage: config_push GROUP VERSION TEXT\n", 64;
    demo::Version version;
    version.set_number(std::stoull(argv[2]));
    if (std::to_string(version.number()) != argv[2]) {  // "-1" would parse as the largest.
        return std::cerr << "no version from 0 to 2^64 - 1: " << argv[2] << '\n', 64;
    }
    version.set_text(argv[3]);
    Runtime runtime = Runtime::create().value();
    const Group group = runtime.group(GroupView::load(argv[1]).value()).value();
    const Status status = runtime.block_on(push(group, version));
    if (!status.ok()) std::cerr << "not pushed: " << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 64;
}
