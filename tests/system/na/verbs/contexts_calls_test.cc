// Calls and transfers over verbs with several contexts: they cost the same as with one, and take no
// lock.
#include <dlfcn.h>
#include <pthread.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/runtime_impl.h"
#include "na/verbs/verbs.h"
#include "support/catch.h"
#include "support/fake_verbs.h"
#include "support/raw_echo.h"

using namespace weft;
using namespace weft::test;

// Under a sanitizer the function is the sanitizer's.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static std::uint64_t locks() { return 0; }
#else
#define WEFT_TEST_COUNTS_LOCKS
static thread_local std::uint64_t locks_of_thread = 0;
static std::uint64_t locks() { return locks_of_thread; }

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
    using Lock = int (*)(pthread_mutex_t*);
    static Lock next = nullptr;
    if (!next) next = reinterpret_cast<Lock>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    ++locks_of_thread;
    return next(mutex);
}
#endif

namespace {

// Without those of the fake device.
std::uint64_t own_locks(const FakeVerbs& fake) {
    const std::uint64_t of_fake = fake.entries();
    return locks() - of_fake;
}

// Every look at the clock takes the same time.
class SteppedClock final : public base::Clock {
  public:
    TimePoint now() const override { return now_ += 100ns; }

  private:
    mutable TimePoint now_{};
};

Runtime make_runtime(unsigned contexts) {
    api::RuntimeParts parts = api::production_parts();
    parts.clock = std::make_shared<SteppedClock>();
    RuntimeOptions options{.contexts = contexts, .manual = true};
    options.log_level = LogLevel::off;
    return Runtime::from_impl(api::RuntimeImpl::make(std::move(options), std::move(parts)).value())
        .value();
}

// Reads the memory that a request refers to.
struct Puller final : Service {
    static constexpr MethodId pull{"test.Puller/Pull"};
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(pull, [this](Call call) {
            const RegionRef ref = RegionRef::decode(call.request()).value();
            auto kept = std::make_shared<Call>(std::move(call));
            kept->get(ref, 0, memory, [kept](const Status& status) {
                if (status.ok()) {
                    kept->reply(ByteView{});
                } else {
                    kept->fail(status);
                }
            });
        });
    }
    Buffer memory;
};

// A server and a client with so many contexts, in one thread. Each context of the client calls one
// of the server.
struct Stepped {
    using Counts = std::map<std::string, std::uint64_t>;

    explicit Stepped(unsigned count) : server(make_runtime(count)), client(make_runtime(count)) {
        REQUIRE(server.serve(shared(service), "verbs://127.0.0.1:0").ok());
        const Channel any = client.connect(server.addresses().at(0)).value();
        for (unsigned k = 0; k < count; ++k) {
            on_context(k, [&] { channels.push_back(any.on(k).here()); });
            locals.push_back(client.allocate(4096).value());
        }
        memory = server.allocate(4096).value();
        region = server.expose(memory, {.access = Access::read}).value();  // On context 0.
    }

    void on_context(unsigned k, const std::function<void()>& work) {
        core::Context& context = impl_of(client).nodes[k]->context;
        const core::Context::EnterGuard scope(context);
        context.refresh_time();
        work();
    }
    void await(const std::size_t& done, std::size_t wanted) {
        int turns = 0;
        while (done < wanted) {
            REQUIRE(++turns < 1'000'000);
            server.turn();
            client.turn();
        }
    }
    // One call of each context after the other, or one transfer.
    void call(std::size_t times) {
        for (std::size_t i = 0; i < times; ++i) {
            std::size_t done = 0;
            for (unsigned k = 0; k < channels.size(); ++k) {
                on_context(k, [&] {
                    channels[k].call(echo_method, as_bytes("hello"), {},
                                     [&](const Status& status, ByteView) {
                                         REQUIRE(status.ok());
                                         ++done;
                                     });
                });
            }
            await(done, channels.size());
        }
    }
    void get(std::size_t times) {
        for (std::size_t i = 0; i < times; ++i) {
            std::size_t done = 0;
            for (unsigned k = 0; k < channels.size(); ++k) {
                on_context(k, [&] {
                    channels[k].get(region.ref(), 0, locals[k], {}, [&](const Status& status) {
                        REQUIRE(status.ok());
                        ++done;
                    });
                });
            }
            await(done, channels.size());
        }
    }
    // Of all contexts of both sides.
    Counts counts() {
        Counts all;
        for (Runtime* runtime : {&server, &client}) {
            for (const auto& node : impl_of(*runtime).nodes) {
                for (const auto& slot : node->context.endpoints()) {
                    const auto* counters = na::device_counters_of(*slot->endpoint);
                    REQUIRE(counters);
                    for (const auto& row : na::verbs::DeviceCounters::counters())
                        all[std::string(row.name)] += counters->*row.count;
                }
            }
        }
        return all;
    }
    struct Cost {
        Counts device;
        std::uint64_t locks = 0;
    };
    // Of `times` calls, or transfers, of each context.
    Cost cost(const FakeVerbs& fake, void (Stepped::*run)(std::size_t), std::size_t times) {
        (this->*run)(256);
        const Counts before = counts();
        const std::uint64_t locked = own_locks(fake);
        (this->*run)(times);
        Cost cost{counts(), own_locks(fake) - locked};
        for (auto& [name, count] : cost.device) count -= before.at(name);
        return cost;
    }

    Echo service;
    Runtime server, client;
    std::vector<Channel> channels;
    std::vector<Buffer> locals;
    Buffer memory;
    Region region;
};

}  // namespace

TEST_CASE("verbs contexts: calls and transfers cost a device the same with two contexts") {
    const FakeVerbs fake;
    constexpr std::size_t times = 1024;
    for (const bool is_call : {true, false}) {
        Stepped one(1), two(2);
        const auto run = is_call ? &Stepped::call : &Stepped::get;
        const Stepped::Cost alone = one.cost(fake, run, times);
        const Stepped::Cost both = two.cost(fake, run, times);
        for (const auto& [name, count] : alone.device) {
            INFO((is_call ? "calls: " : "transfers: ") << name);
            // Less memory for messages has fewer pages.
            if (name == "misses of page") {
                CHECK(both.device.at(name) <= 2 * count);
            } else {
                CHECK(both.device.at(name) == 2 * count);
            }
        }
        CHECK(alone.device.at("messages in") > times);
        CHECK(alone.device.at("transfers") == (is_call ? 0 : times));
    }
}

TEST_CASE("verbs contexts: a region that all contexts grant is registered once") {
    const FakeVerbs fake;
    Stepped four(4);
    four.get(1);  // Registers the memory of the clients, too.
    const std::uint64_t registered = fake.registrations();
    const std::uint64_t deregistered = fake.deregistrations();
    four.region = four.server.expose(four.memory, {.access = Access::read}).value();
    four.get(2);
    CHECK(fake.registrations() == registered + 1);
    CHECK(fake.deregistrations() == deregistered + 1);  // Of the former region.
}

TEST_CASE(
    "verbs contexts: a context that can't register a region of another refuses the transfer") {
    FakeVerbs fake;
    Puller service;
    Runtime server = make_runtime(1), client = make_runtime(2);
    REQUIRE(server.serve(service, "verbs://127.0.0.1:0").ok());
    service.memory = server.allocate(4096).value();
    const Buffer memory = client.allocate(4096).value();
    Region region = client.expose(memory, {.access = Access::read}).value();  // On context 0.
    core::Context& other = impl_of(client).nodes[1]->context;
    Channel channel;
    {  // Context 0 has no endpoint.
        const core::Context::EnterGuard scope(other);
        other.refresh_time();
        channel = client.connect(server.addresses().at(0)).value();
    }
    const auto pull = [&] {
        std::optional<Status> ended;
        {
            const core::Context::EnterGuard scope(other);
            other.refresh_time();
            std::array<std::byte, RegionRef::wire_bytes> ref{};
            region.ref().encode(ref);
            channel.call(Puller::pull, ref, {},
                         [&](const Status& status, ByteView) { ended = status; });
        }
        for (int turns = 0; !ended && turns < 100'000; ++turns) {
            server.turn();
            client.turn();
        }
        REQUIRE(ended);
        return *ended;
    };
    fake.fail_registration(ENOMEM);
    const Status refused = pull();
    CHECK(refused.code() == Code::resource_exhausted);
    CHECK(refused.text().find("can't register") != std::string_view::npos);
    const std::uint64_t deregistered = fake.deregistrations();
    CHECK(pull().ok());
    bool is_fenced = false;
    region.close([&] { is_fenced = true; });
    for (int turns = 0; !is_fenced && turns < 100'000; ++turns) {
        server.turn();
        client.turn();
    }
    CHECK(is_fenced);
    CHECK(fake.deregistrations() == deregistered + 1);
    channel = Channel();
}

#ifdef WEFT_TEST_COUNTS_LOCKS
TEST_CASE("verbs contexts: neither a call nor a transfer takes a lock") {
    const FakeVerbs fake;
    Stepped two(2);
    CHECK(two.cost(fake, &Stepped::call, 1024).locks == 0);
    CHECK(two.cost(fake, &Stepped::get, 1024).locks == 0);
    // Where there is a lock, it is counted.
    const std::uint64_t before = own_locks(fake);
    const Region other = two.server.expose(two.memory, {.access = Access::read}).value();
    CHECK(own_locks(fake) > before);
}
#endif
