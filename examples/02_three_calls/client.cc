// client GROUP: makes all three calls to the group of the group file, the first two to its rank 0.
#include <iostream>

#include <weft/runtime.h>

#include "store.weft.h"

using namespace weft;

Task<Status> call_all(Runtime& runtime, Group group) {
    const demo::StoreClient store(group.channel(0).value());
    demo::Text text;
    text.set_text("hello");
    const demo::Text echo = (co_await store.Echo(text)).value();
    std::cout << "echo: " << echo.text() << '\n';

    const Buffer memory = runtime.allocate(64 << 20).value();
    const Region region = runtime.expose(memory, {.access = Access::write}).value();
    demo::Extent extent;
    extent.set_offset(4096);
    extent.set_length(memory.size());
    to_proto(region.ref(), extent.mutable_into());
    (co_await store.Read(extent)).value();
    std::cout << "read: byte 8192 is " << std::to_integer<int>(memory.data()[8192]) << '\n';

    demo::Setting setting;
    setting.set_key("cache_bytes");
    setting.set_value("4194304");
    const auto members = co_await demo::StoreGroupClient(group).SetConfig(setting);
    for (const auto& member : members) {
        std::cout << "set: rank " << member.rank << ": " << member.status.to_string() << '\n';
    }
    co_return members.status();
}

int main(int argc, char** argv) try {
    if (argc != 2) return std::cerr << "usage: client GROUP\n", 64;
    const GroupView view = GroupView::load(argv[1]).value();
    Runtime runtime = Runtime::create().value();
    const Group group = runtime.group(view).value();
    const Status status = runtime.block_on(call_all(runtime, group));
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
