// Services that are added while clients call: on all contexts or none, and reachable on none before
// they are there on all.
#include <atomic>
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>

#include <weft/await.h>

#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"

using namespace weft;
using namespace weft::test;

namespace context_services_test {

constexpr unsigned contexts = 3;
constexpr MethodId added_method("test.Services/Added");
constexpr MethodId other_method("test.Services/Other");

enum class Failure { none, none_made, throws, served_there, register_throws, stopped };
constexpr Failure failures[] = {Failure::none_made, Failure::throws, Failure::served_there,
                                Failure::register_throws, Failure::stopped};

// What the services of one call of add() have done.
struct Seen {
    std::atomic<int> made{0}, alive{0}, handled{0};
};

class AddedService final : public Service {
  public:
    AddedService(Seen& seen, Failure failure) : seen_(seen), failure_(failure) {
        ++seen_.made;
        ++seen_.alive;
    }
    ~AddedService() override { --seen_.alive; }
    void register_methods(MethodRegistrar& registrar) override {
        const auto handle = [this](Call call) {
            ++seen_.handled;
            call.reply({});
        };
        registrar.add(added_method, handle);
        registrar.add(failure_ == Failure::served_there ? added_method : other_method, handle);
        if (failure_ == Failure::register_throws) throw std::runtime_error("not registered");
    }

  private:
    Seen& seen_;
    const Failure failure_;
};

// A server that listens, a client with a connection to each of its contexts, and a call of add()
// that waits on context 1 until release().
class Rig {
  public:
    Rig() : server(contexts, fresh_uri("unix")) {
        client.emplace(Runtime::create(with_contexts(1)).value());
        const Channel channel = client->connect(server.address()).value();
        for (unsigned k = 0; k < contexts; ++k) {
            to.push_back(channel.on(k));
            REQUIRE(ask_context(*client, to[k]) == k);
        }
    }
    // Of a service that fails on the last context.
    ServiceFactory failing(Failure failure) {
        return [this, failure](const Here& here) -> std::unique_ptr<Service> {
            const bool is_last = here.index + 1 == contexts;
            if (here.index == 1) {
                arrived_.set_value();
                release_.get_future().wait();
                if (failure == Failure::stopped) server.runtime.stop();
            }
            if (is_last && failure == Failure::none_made) return nullptr;
            if (is_last && failure == Failure::throws) throw std::runtime_error("not made");
            return std::make_unique<AddedService>(seen, is_last ? failure : Failure::none);
        };
    }
    void begin(ServiceFactory make) {
        adding_ = std::async(std::launch::async,
                             [this, make = std::make_shared<ServiceFactory>(std::move(make))] {
                                 return server.runtime.add(std::move(*make));
                             });
        arrived_.get_future().wait();
    }
    Status end() {
        release_.set_value();
        return adding_.get();  // Or throws.
    }
    Code ask(unsigned k) {
        const auto asked = [](Channel channel) -> Task<Code> {
            co_return (co_await call(channel, added_method, {})).status().code();
        };
        return client->block_on(asked(to[k]));
    }

    Seen seen;
    NumberedServer server;
    std::optional<Runtime> client;
    std::vector<Channel> to;

  private:
    std::promise<void> arrived_, release_;
    std::future<Status> adding_;
};

TEST_CASE("services: none is reached before it is made on all contexts") {
    Rig rig;
    rig.begin(rig.failing(Failure::none));
    CHECK(rig.seen.made == 1);
    CHECK(rig.ask(0) == Code::unimplemented);
    CHECK(rig.ask(2) == Code::unimplemented);
    CHECK(rig.end().ok());
    for (unsigned k = 0; k < contexts; ++k) CHECK(rig.ask(k) == Code::ok);
    CHECK(rig.seen.handled == contexts);
}

TEST_CASE("services: one that fails on a context ran no handler on another, and may be retried") {
    for (const Failure failure : failures) {
        CAPTURE(static_cast<int>(failure));
        Rig rig;
        rig.begin(rig.failing(failure));
        CHECK(rig.ask(0) == Code::unimplemented);
        if (failure == Failure::throws || failure == Failure::register_throws) {
            CHECK_THROWS_AS(rig.end(), std::runtime_error);
        } else {
            const Code expected = failure == Failure::none_made      ? Code::invalid_argument
                                  : failure == Failure::served_there ? Code::already_exists
                                                                     : Code::failed_precondition;
            CHECK(rig.end().code() == expected);
        }
        CHECK(rig.seen.alive == rig.seen.made);  // They may have begun coroutines.
        for (unsigned k = 0; k < contexts; ++k) CHECK(rig.ask(k) == Code::unimplemented);
        CHECK(rig.seen.handled == 0);
        if (failure == Failure::stopped) continue;
        const auto good = [&](const Here&) {
            return std::make_unique<AddedService>(rig.seen, Failure::none);
        };
        REQUIRE(rig.server.runtime.add(good).ok());
        for (unsigned k = 0; k < contexts; ++k) CHECK(rig.ask(k) == Code::ok);
        CHECK(rig.seen.handled == contexts);
    }
}

// The same for a service that all contexts use.
TEST_CASE("services: a shared one is reached once it is registered on all contexts") {
    struct Shared final : Service {
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(added_method, [](Call call) { call.reply({}); });
            if (++registered != 2) return;
            arrived.set_value();
            release.get_future().wait();
            if (is_bad) throw std::runtime_error("not registered");
        }
        bool is_bad = false;
        int registered = 0;
        std::promise<void> arrived, release;
    };
    for (const bool is_bad : {false, true}) {
        CAPTURE(is_bad);
        Shared service;
        service.is_bad = is_bad;
        Rig rig;
        auto adding =
            std::async(std::launch::async, [&] { return rig.server.runtime.add(shared(service)); });
        service.arrived.get_future().wait();
        CHECK(rig.ask(0) == Code::unimplemented);
        service.release.set_value();
        if (is_bad) {
            CHECK_THROWS_AS(adding.get(), std::runtime_error);
        } else {
            CHECK(adding.get().ok());
        }
        for (unsigned k = 0; k < contexts; ++k)
            CHECK(rig.ask(k) == (is_bad ? Code::unimplemented : Code::ok));
    }
}

}  // namespace context_services_test
