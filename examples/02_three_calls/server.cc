// server GROUP RANK: serves as this member of the group file's group until SIGTERM.
#include <iostream>
#include <map>

#include <weft/runtime.h>

#include "store.weft.h"

using namespace weft;

struct Store final : demo::StoreService {
    Buffer data;
    std::map<std::string, std::string> config;

    Status Echo(Call&, const demo::Text& in, demo::Text& out) override {
        out.set_text(in.text());
        return {};
    }

    Task<Status> Read(Call& call, const demo::Extent& in, demo::Done&) override {
        if (in.offset() > data.size() || in.length() > data.size() - in.offset()) {
            co_return rejected(Code::out_of_range, "the data ends before the extent does");
        }
        const Result<RegionRef> into = from_proto(in.into());
        if (!into) co_return rejected(into.status());
        co_return co_await put(call, *into, 0, data.slice(in.offset(), in.length()));
    }

    Status SetConfig(Call&, const demo::Setting& in, demo::Done&) override {
        config[in.key()] = in.value();
        return {};
    }
};

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: server GROUP RANK\n", 64;
    const GroupView view = GroupView::load(argv[1]).value();
    const auto rank = static_cast<std::uint32_t>(std::stoul(argv[2]));
    Store store;  // Outlives the runtime that serves it.
    Runtime runtime = Runtime::create().value();
    store.data = runtime.allocate(128 << 20).value();
    for (std::size_t i = 0; i < store.data.size(); ++i) store.data.data()[i] = std::byte(i >> 12);
    Status status = runtime.join(view, rank);
    if (status.ok()) status = runtime.serve(store, view.find(rank)->uris);
    if (status.ok()) status = runtime.run();
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
