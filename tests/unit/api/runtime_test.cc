// A runtime from a program's view: options, addresses, failures of the system, and misuse.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <thread>

#include "support/child.h"
#include "support/no_more_threads.h"
#include "support/open_files.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

namespace {

std::string unique_uri(const char* what) {
    static int count = 0;
    return std::string("sm://runtime-") + what + "-" + std::to_string(getpid()) + "-" +
           std::to_string(++count);
}

Task<> throws() {
    throw std::runtime_error("not awaited");
    co_return;
}

Task<> notes(bool& done) {
    done = true;
    co_return;
}

}  // namespace

TEST_CASE("an invalid option is refused by its name") {
    const auto refused = [](const char* name, const std::function<void(RuntimeOptions&)>& spoil) {
        RuntimeOptions options;
        options.manual = true;
        spoil(options);
        const Result<Runtime> runtime = Runtime::create(std::move(options));
        INFO(name);
        REQUIRE_FALSE(runtime.ok());
        CHECK(runtime.status().code() == Code::invalid_argument);
        CHECK(runtime.status().text().find(name) != std::string_view::npos);
    };
    refused("heartbeat_interval", [](auto& options) { options.heartbeat_interval = 0s; });
    refused("heartbeat_interval", [](auto& options) { options.heartbeat_interval = -1s; });
    refused("peers_max", [](auto& options) { options.peers_max = 0; });
    refused("peers_max", [](auto& options) { options.peers_max = std::size_t{1} << 40; });
    for (const unsigned cpu : {8191u, 50000u}) {
        refused("cpu", [cpu](auto& options) {
            options.cpu = cpu;
            options.manual = false;  // A manual runtime has no thread to bind.
        });
    }
    refused("drain_timeout", [](auto& options) { options.drain_timeout = -1s; });
    refused("default_timeout", [](auto& options) { options.default_timeout = 0s; });
    refused("arena_bytes_max", [](auto& options) { options.arena_bytes_max = ~std::size_t{0}; });
    refused("offload_threads", [](auto& options) { options.offload_threads = 257; });
    refused("spin", [](auto& options) { options.spin = 2s; });
}

TEST_CASE("addresses are given alone or as a list") {
    Echo service;
    Runtime runtime = Runtime::create({.manual = true}).value();
    const std::string one = unique_uri("a"), two = unique_uri("b"), three = unique_uri("c");
    REQUIRE(runtime.serve(service, {one, two}).ok());
    REQUIRE(runtime.serve(service, three.c_str()).ok());  // The same service, once more.
    CHECK(runtime.addresses() == std::vector<std::string>{one, two, three});
    CHECK(runtime.connect({"sm://absent", "sm://absent-else"}).ok());
    CHECK(runtime.connect({one}).ok());
    CHECK(runtime.connect(std::vector<std::string>{one, two}).ok());
    CHECK(runtime.connect(std::string_view(two)).ok());
    CHECK(runtime.connect("nonsense").status().code() == Code::invalid_argument);
    CHECK(runtime.connect(std::vector<std::string>{}).status().code() == Code::invalid_argument);
}

TEST_CASE("serving may be tried again at another address") {
    Echo service, other;
    Runtime owner = Runtime::create({.manual = true}).value();
    const std::string taken = unique_uri("taken"), free = unique_uri("free");
    REQUIRE(owner.serve(other, taken).ok());
    Runtime runtime = Runtime::create().value();
    REQUIRE(runtime.serve(service, taken).code() == Code::already_exists);
    REQUIRE(runtime.serve(service, free).ok());
    CallOutcome outcome;
    Channel channel = owner.connect(free).value();
    channel.call(echo_method, as_bytes("there"), {}, outcome.done());
    REQUIRE(owner.turn_until([&] { return outcome.completions > 0; }, test_timeout));
    CHECK(outcome.reply == "there");
}

// Two methods: the second is registered already, or its registration throws.
struct Half final : Service {
    static constexpr MethodId first{"test.Half/First"};
    bool throws = false;
    bool fails = true;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(first, [](Call call) { call.reply({}); });
        if (throws) throw std::runtime_error("no second one");
        if (fails) registrar.add(echo_method, [](Call call) { call.reply({}); });
    }
};

static Code code_of(Runtime& owner, const std::string& uri, const MethodId& method) {
    Channel channel = owner.connect(uri).value();
    CallOutcome outcome;
    channel.call(method, as_bytes("x"), {}, outcome.done());
    REQUIRE(owner.turn_until([&] { return outcome.completions > 0; }, test_timeout));
    return outcome.status.code();
}

TEST_CASE("a service is added with all of its methods, or with none") {
    Echo service;
    Half whole;
    Runtime runtime = Runtime::create({.manual = true}).value();
    const std::string uri = unique_uri("half");
    REQUIRE(runtime.serve(service, uri).ok());
    auto half = std::make_unique<Half>();
    CHECK(runtime.add(*half).code() == Code::already_exists);
    half->throws = true;
    CHECK_THROWS(runtime.add(*half));
    Runtime with_thread = Runtime::create().value();
    CHECK_THROWS_WITH(with_thread.add(*half), "no second one");
    half.reset();  // Nothing refers to it.
    CHECK(code_of(runtime, uri, Half::first) == Code::unimplemented);
    CHECK(code_of(runtime, uri, echo_method) == Code::ok);
    whole.fails = false;
    REQUIRE(runtime.add(whole).ok());
    CHECK(code_of(runtime, uri, Half::first) == Code::ok);
}

TEST_CASE("a service is served at all of its addresses, or not at all") {
    Echo service, other;
    Runtime owner = Runtime::create({.manual = true}).value();
    const std::string taken = unique_uri("taken"), free = unique_uri("free");
    REQUIRE(owner.serve(other, taken).ok());
    Runtime runtime = Runtime::create().value();
    auto first = std::make_unique<Echo>();
    const Status refused = runtime.serve(*first, {free, taken});
    CHECK(refused.code() == Code::already_exists);
    CHECK(refused.text().find(taken) != std::string::npos);
    CHECK(runtime.addresses().empty());
    CHECK(code_of(owner, free, echo_method) == Code::unavailable);
    CHECK(runtime.serve(*first, {free, "no address"}).code() == Code::invalid_argument);
    CHECK(runtime.addresses().empty());
    first.reset();
    REQUIRE(runtime.serve(service, free).ok());
    CHECK(code_of(owner, free, echo_method) == Code::ok);
    // A service that is served already stays so when another address is refused.
    CHECK(runtime.serve(service, taken).code() == Code::already_exists);
    CHECK(code_of(owner, free, echo_method) == Code::ok);
}

TEST_CASE("an exception of a spawned task is dropped") {
    Runtime runtime = Runtime::create({.manual = true}).value();
    bool later = false;
    runtime.spawn(throws());
    runtime.spawn(notes(later));
    CHECK(runtime.turn_until([&] { return later; }, test_timeout));
}

TEST_CASE("turning inside a turn ends the program") {
    using Nested = void (*)(Runtime&);
    const Nested nested = GENERATE(
        static_cast<Nested>([](Runtime& runtime) { runtime.turn(); }),
        static_cast<Nested>([](Runtime& runtime) { runtime.turn_until([] { return true; }, 1s); }),
        static_cast<Nested>([](Runtime& runtime) {
            bool done = false;
            runtime.block_on(notes(done));
        }));
    CHECK(end_of_child([nested] {
              Runtime runtime = Runtime::create({.manual = true}).value();
              runtime.executor().post([&] { nested(runtime); });
              runtime.turn();
              return 0;
          }) == -SIGABRT);
}

TEST_CASE("create fails with RESOURCE_EXHAUSTED when no thread or descriptor is left") {
    {
        const NoMoreThreads limit;
        const Result<Runtime> runtime = Runtime::create();
        REQUIRE_FALSE(runtime.ok());
        CHECK(runtime.status().code() == Code::resource_exhausted);
        sigset_t mask;
        pthread_sigmask(SIG_BLOCK, nullptr, &mask);
        CHECK(sigismember(&mask, SIGTERM) == 0);
    }
    // With each limit of descriptors the runtime is refused, or it works.
    CHECK(end_of_child([] {
              int refused = 0, worked = 0;
              const int first = dup(0);  // The lowest that is free.
              close(first);
              for (rlim_t limit = static_cast<rlim_t>(first); limit < first + 20u; ++limit) {
                  const rlimit few{limit, 1024};
                  setrlimit(RLIMIT_NOFILE, &few);
                  Result<Runtime> runtime = Runtime::create();
                  if (!runtime) {
                      if (runtime.status().code() != Code::resource_exhausted) return 1;
                      ++refused;
                      continue;
                  }
                  runtime->stop();
                  const Status status = runtime->run();
                  if (!status.ok() && status.code() != Code::resource_exhausted) return 2;
                  worked += status.ok();
              }
              return refused > 0 && worked > 0 ? 0 : 3;
          }) == 0);
}

TEST_CASE("a second signal ends the wait for handlers, and the program goes on") {
    const std::string uri = unique_uri("signals");
    CHECK(end_of_child([&] {
              sigset_t stop;
              sigemptyset(&stop);
              sigaddset(&stop, SIGTERM);
              pthread_sigmask(SIG_BLOCK, &stop, nullptr);
              Echo service;
              service.hold = true;
              Status status;
              {
                  Runtime runtime = Runtime::create({.drain_timeout = 60s}).value();
                  if (!runtime.serve(service, uri).ok()) return 1;
                  std::thread signaller([&] {
                      CallOutcome held, refused;  // Outlive the runtime that completes them.
                      Runtime client = Runtime::create({.manual = true}).value();
                      Channel channel = client.connect(uri).value();
                      channel.call(echo_method, {}, {}, held.done());
                      std::size_t calls = 0;
                      while (calls == 0) {
                          client.turn();
                          node_of(runtime).on_context([&] { calls = service.held.size(); });
                      }
                      kill(getpid(), SIGTERM);
                      // The server drains when it refuses.
                      while (refused.status.code() != Code::unavailable) {
                          refused = {};
                          channel.call(echo_method, {}, {}, refused.done());
                          const std::size_t before = calls;
                          while (refused.completions == 0 && before == calls) {
                              client.turn();
                              node_of(runtime).on_context([&] { calls = service.held.size(); });
                          }
                      }
                      kill(getpid(), SIGTERM);
                  });
                  status = runtime.run();
                  signaller.join();
                  node_of(runtime).on_context([&] { service.held.clear(); });
                  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
              }
              return status.code() == Code::cancelled ? 0 : 2;
          }) == 0);
}

TEST_CASE("a channel that outlives its runtime keeps no descriptor and runs posted work") {
    const bool is_manual = GENERATE(false, true);
    CAPTURE(is_manual);
    (void)Runtime::create().value();  // Opens the descriptors that a process opens once.
    const int before = open_files();
    Channel channel;
    Buffer memory;
    Executor* executor = nullptr;
    {
        Runtime runtime = Runtime::create({.manual = is_manual}).value();
        REQUIRE(runtime.listen(unique_uri("outlived")).ok());
        memory = runtime.allocate(64 << 20).value();
        channel = runtime.connect("sm://absent").value();
        executor = &runtime.executor();
        CHECK(open_files() > before);
    }
    CHECK(open_files() == before);
    std::ranges::fill(memory.bytes(), std::byte{1});
    memory = Buffer();
    bool ran = false;
    executor->post([&] { ran = true; });
    CHECK(ran);
}
