// Three members and a client in one process: the members gather, the client reads their load.
#include <unistd.h>

#include <iostream>
#include <thread>

#include <weft/runtime.h>

#include "slowest.h"
#include "statistics.weft.h"

using namespace weft;

// The statistics of one member.
struct Statistics final : demo::StatisticsService {
    demo::LoadReply load;

    void count(std::uint32_t rank, std::uint64_t ms) {
        const int within = ms <= 1 ? 0 : ms <= 10 ? 1 : 2;
        while (load.within_size() <= within) load.add_within(0);
        load.set_within(within, load.within(within) + 1);
        load.set_calls(load.calls() + 1);
        demo::Slowest call;
        call.set_rank(rank);
        call.set_ms(ms);
        merge(*load.mutable_slowest(), call);
    }

    Status Load(Call&, const demo::LoadRequest&, demo::LoadReply& out) override {
        out = load;
        return {};
    }
};

// Called once by each member: afterwards every member has the rank of the slowest call.
Task<Status> join_others(Group group, demo::Slowest mine) {
    const auto all = co_await all_gather(group, "start", mine, {.timeout = 2s});
    if (!all.status().ok()) co_return all.status();
    for (const auto& member : all) merge(mine, member.reply);
    co_return co_await barrier(group, "merged", {.timeout = 2s});
}

Task<Status> print_load(Group group) {
    const auto load = co_await demo::StatisticsGroupClient(group).Load({});
    const demo::LoadReply& all = load.reply();
    std::cout << all.calls() << " calls at " << load.ok_count() << " members, the slowest at rank "
              << all.slowest().rank() << '\n';
    for (const auto& member : load) {
        if (!member.status.ok()) std::cout << "without rank " << member.rank << '\n';
    }
    co_return load.status();
}

int main() try {
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        const std::string name = std::to_string(::getpid()) + "-" + std::to_string(rank);
        members.push_back({rank, {"sm://statistics-" + name}});
    }
    const GroupView view = GroupView::make("statistics", 1, members).value();
    std::vector<Statistics> services(members.size());  // They outlive the runtimes that serve them.
    std::vector<Runtime> runtimes;
    std::vector<std::jthread> meeting;
    meeting.reserve(members.size());
    for (const Member& member : members) {
        for (std::uint64_t ms = 1; ms <= 10 * (member.rank + 1); ++ms) {
            services[member.rank].count(member.rank, ms);
        }
        Runtime& runtime = runtimes.emplace_back(Runtime::create().value());
        Status status = runtime.join(view, member.rank);
        if (status.ok()) status = runtime.serve(services[member.rank], member.uris);
        if (!status.ok()) throw BadResult(status);
    }
    for (const Member& member : members) {
        meeting.emplace_back([&, &runtime = runtimes[member.rank]] {
            const Group group = runtime.group(view).value();
            const Status met =
                runtime.block_on(join_others(group, services[member.rank].load.slowest()));
            if (!met.ok()) std::cerr << met.to_string() << '\n';
        });
    }
    meeting.clear();
    Runtime client = Runtime::create().value();
    const Status status = client.block_on(print_load(client.group(view).value()));
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
