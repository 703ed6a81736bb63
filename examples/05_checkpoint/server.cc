// shard_server GROUP RANK FILE: a member that holds the data written to it and appends the data to
// its file at each checkpoint, until SIGTERM.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <iostream>

#include <weft/offload.h>
#include <weft/runtime.h>

#include "checkpoint.weft.h"

using namespace weft;

struct Shard final : demo::ShardService {
    Shard(std::uint32_t own_rank, const std::string& path)
        : rank(own_rank), file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644)) {}
    ~Shard() override { ::close(file); }

    Status Write(Call&, const demo::Data& in, demo::Held& out) override {
        held += in.bytes();
        out.set_bytes(held.size());
        return {};
    }

    // File I/O runs outside of the context's thread, so that other calls proceed meanwhile.
    Task<Status> Checkpoint(Call&, const demo::CheckpointRequest&,
                            demo::CheckpointReply& out) override {
        const std::string writing = std::exchange(held, {});
        const auto begin = std::chrono::steady_clock::now();
        const bool is_written = co_await offload([this, &writing] {
            return ::write(file, writing.data(), writing.size()) ==
                       static_cast<ssize_t>(writing.size()) &&
                   ::fsync(file) == 0;
        });
        if (!is_written) co_return fail(Code::data_loss, "the checkpoint's file can't be written");
        const std::chrono::duration<double, std::milli> took =
            std::chrono::steady_clock::now() - begin;
        out.set_bytes(writing.size());
        out.mutable_slowest()->set_rank(rank);
        out.mutable_slowest()->set_ms(took.count());
        co_return Status();
    }

    const std::uint32_t rank;
    const int file;
    std::string held;  // Data since the last checkpoint.
};

int main(int argc, char** argv) try {
    if (argc != 4) return std::cerr << "usage: shard_server GROUP RANK FILE\n", 64;
    const GroupView view = GroupView::load(argv[1]).value();
    const auto rank = static_cast<std::uint32_t>(std::stoul(argv[2]));
    if (!view.find(rank) || std::to_string(rank) != argv[2]) {
        return std::cerr << "no such rank: " << argv[2] << '\n', 64;
    }
    Shard shard(rank, argv[3]);  // The service outlives the runtime that serves it.
    if (shard.file < 0) return std::cerr << "can't write " << argv[3] << '\n', 1;
    Runtime runtime = Runtime::create().value();
    Status status = runtime.join(view, rank);
    if (status.ok()) status = runtime.serve(shard, view.find(rank)->uris);
    if (status.ok()) std::cout << "rank " << rank << " is there" << std::endl;
    if (status.ok()) status = runtime.run();
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
