// checkpoint GROUP [BYTES]: writes BYTES to each live member, then has all of them make their data
// durable. It ends when all members have done so: a barrier.
#include <iostream>

#include <weft/runtime.h>

#include "checkpoint.weft.h"

using namespace weft;

static Task<Status> write_all(Group group, std::size_t bytes) {
    demo::Data data;
    data.set_bytes(std::string(bytes, 'x'));
    for (const Member& member : group.view().members()) {
        const Channel channel = group.channel(member.rank).value();
        const auto held = co_await demo::ShardClient(channel).Write(data);
        if (!held) std::cout << "rank " << member.rank << " takes no data\n";
    }
    co_return Status();
}

static Task<Status> checkpoint(Group group) {
    const auto all = co_await demo::ShardGroupClient(group).Checkpoint({});
    std::cout << all.reply().bytes() << " bytes durable at " << all.ok_count() << " of "
              << all.size() << " members; rank " << all.reply().slowest().rank() << " took "
              << all.reply().slowest().ms() << " ms\n";
    for (const auto& member : all) {
        if (member.status.ok()) continue;
        std::cout << "rank " << member.rank << ": " << member.status.to_string() << '\n';
    }
    co_return all.status();
}

int main(int argc, char** argv) try {
    if (argc != 2 && argc != 3) return std::cerr << "usage: checkpoint GROUP [BYTES]\n", 64;
    Runtime runtime = Runtime::create().value();
    const Group group = runtime.group(GroupView::load(argv[1]).value()).value();
    Status status;
    if (argc == 3) status = runtime.block_on(write_all(group, std::stoul(argv[2])));
    if (status.ok()) status = runtime.block_on(checkpoint(group));
    if (!status.ok()) std::cerr << "not complete: " << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 64;
}
