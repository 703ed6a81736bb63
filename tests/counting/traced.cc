// Two contexts of a server and two of a client, context k of the client calls context k of the
// server: two pairs, stepped by one thread. The thread writes a mark before the turns of each pair,
// so that a trace of its memory accesses shows the cache lines that the pairs share
// (shared_lines.py).
//
//   PROGRAM calls|gets|planted CALLS     planted: calls, and a counter that both pairs increment
//
// Prints the addresses of the marks, the ranges that threads would not share, and how many locks
// were taken in the steady calls.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <algorithm>
#include <array>

#include "counting/stepped.h"

using namespace weft;
using counting::Caller;

// Every mutex of the program and its libraries passes through here.
static std::size_t locks = 0;
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
    static const auto lock =
        reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    ++locks;
    return lock(mutex);
}

namespace {

constexpr unsigned pairs = 2;
constexpr MethodId echo("counting.Echo/Echo");

struct Echo final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo, [](Call call) { call.reply(call.request()); });
    }
};

// A write to the k-th: the accesses that follow are those of pair k; to the last one: of none.
struct alignas(128) Mark {
    volatile std::uint64_t time = 0;
};
std::array<Mark, pairs + 1> marks;
struct alignas(128) {
    std::size_t pair = pairs;
} current;  // Of no pair.

void mark(std::size_t pair) {
    current.pair = pair;
    marks[pair].time = marks[pair].time + 100;
}

// Each pair has a time of its own, because a clock is a line that is written.
class PairClock final : public base::Clock {
  public:
    TimePoint now() const override {
        return TimePoint{} + Duration(static_cast<std::int64_t>(marks[current.pair].time));
    }
};

struct alignas(128) Pair {
    Caller caller;
    Buffer local;
    core::Context* server = nullptr;
    core::Context* client = nullptr;
};

std::uint64_t planted = 0;
RegionRef source;

void make_call(Caller& caller) {
    static const std::byte body[64] = {};
    caller.channel.call(echo, body, {},
                        [&caller](const Status& status, ByteView) { caller.on_done(status); });
}
void make_planted_call(Caller& caller) {
    ++planted;
    make_call(caller);
}
void make_get(Caller& caller) {
    Pair& pair = reinterpret_cast<Pair&>(caller);  // Its first member.
    caller.channel.get(source, 0, pair.local, {},
                       [&caller](const Status& status) { caller.on_done(status); });
}

void run_for(std::array<Pair, pairs>& all, std::size_t calls) {
    for (std::size_t k = 0; k < pairs; ++k) {
        mark(k);
        const core::Context::EnterGuard scope(*all[k].client);
        all[k].client->refresh_time();
        all[k].caller.left = calls;
        all[k].caller.next();
        mark(pairs);
    }
    const auto is_over = [&] {
        return std::all_of(all.begin(), all.end(),
                           [](const Pair& pair) { return pair.caller.left == 0; });
    };
    while (!is_over()) {
        for (std::size_t k = 0; k < pairs; ++k) {
            mark(k);
            all[k].server->turn(all[k].server->clock().now());
            mark(k);
            all[k].client->turn(all[k].client->clock().now());
            mark(pairs);
        }
    }
}

Runtime make_runtime(const std::shared_ptr<base::Clock>& clock) {
    api::RuntimeParts parts = api::production_parts();
    parts.clock = clock;
    return Runtime::from_impl(
               api::RuntimeImpl::make({.contexts = pairs, .manual = true}, std::move(parts))
                   .value())
        .value();
}

// And where the program itself is.
void print_thread_locals() {
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void*) {
            if (!*info->dlpi_name) std::printf("base %zx\n", std::size_t{info->dlpi_addr});
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const ElfW(Phdr)& part = info->dlpi_phdr[i];
                if (part.p_type != PT_TLS || !info->dlpi_tls_data) continue;
                const auto at = reinterpret_cast<std::uintptr_t>(info->dlpi_tls_data);
                std::printf("own %zx %zx\n", at, at + part.p_memsz);
            }
            return 0;
        },
        nullptr);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const std::string mode = argv[1];
    const std::size_t calls = std::strtoul(argv[2], nullptr, 10);
    const auto stack = reinterpret_cast<std::uintptr_t>(&argc);
    std::printf("own %zx %zx\n", stack - (8u << 20), stack + (1u << 20));
    print_thread_locals();
    const auto own = reinterpret_cast<std::uintptr_t>(&current);
    std::printf("own %zx %zx\n", own, own + sizeof current);
    for (const Mark& one : marks) std::printf("mark %p\n", static_cast<const void*>(&one));
    std::fflush(stdout);

    const std::string uri = "sm://traced-" + std::to_string(getpid());
    const auto clock = std::make_shared<PairClock>();
    Echo service;
    Runtime server = make_runtime(clock), client = make_runtime(clock);
    if (Status status = server.serve(shared(service), uri); !status.ok()) {
        std::fprintf(stderr, "%s\n", status.to_string().c_str());
        return 1;
    }
    const Region region =
        server.expose(server.allocate(4096).value(), {.access = Access::read}).value();
    source = region.ref();
    const Channel channel = client.connect(uri).value();
    std::array<Pair, pairs> all;
    for (unsigned k = 0; k < pairs; ++k) {
        all[k].caller.call = mode == "gets"      ? make_get
                             : mode == "planted" ? make_planted_call
                                                 : make_call;
        all[k].caller.channel = channel.on(k);
        all[k].local = client.allocate(4096).value();
        all[k].server = &impl_of(server).nodes[k]->context;
        all[k].client = &impl_of(client).nodes[k]->context;
    }
    for (Pair& pair : all) {
        const core::Context::EnterGuard scope(*pair.client);
        pair.caller.channel = pair.caller.channel.here();
    }
    run_for(all, 300);
    locks = 0;
    mark(pairs);
    marks[pairs].time = 0;  // Twice: the steady calls begin.
    run_for(all, calls);
    std::printf("locks %zu\n", locks);
    return 0;
}
