// The end of Runtime::run() and of a runtime under obstacles: threads in the runtime, handlers that
// block, several runtimes, and descriptors that the program closed.
#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <weft/group_authority.h>
#include <weft/sleep.h>

#include "support/child.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"

namespace weft::run_end_test {
namespace {

using namespace weft::test;

constexpr unsigned long_enough_s = 20;  // Enough unless it hangs.

ChildOutput output_in_time(const std::function<int()>& body) {
    return output_of_child([&] {
        ::alarm(long_enough_s);
        return body();
    });
}

std::string fresh_uri() {
    static int last = 0;
    return "sm://run-end-" + std::to_string(::getpid()) + "-" + std::to_string(++last);
}

// The log of runtimes, with a wait for a part of it.
class LogCapture {
  public:
    LogSink sink() {
        return [this](LogLevel, std::string_view line) {
            const std::lock_guard lock(mutex_);
            text_ += std::string(line) + "\n";
            changed_.notify_all();
        };
    }
    bool wait_for(const std::string& part, Duration limit = test_timeout) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, limit, [&] { return count_of(part) > 0; });
    }
    std::size_t count(const std::string& part) {
        const std::lock_guard lock(mutex_);
        return count_of(part);
    }

  private:
    std::size_t count_of(const std::string& part) const {
        std::size_t found = 0;
        for (std::size_t at = 0; (at = text_.find(part, at)) != std::string::npos; ++at) ++found;
        return found;
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::string text_;
};

// ---- threads that are in the runtime -----------------------------------------------------------

// Holds its call and signals when run() drains.
struct Drains final : Service {
    std::promise<void> draining;
    std::vector<Call> held;
    std::promise<void> begun;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_method, [this](Call call) {
            call.on_drain([this] { draining.set_value(); });
            held.push_back(std::move(call));
            begun.set_value();
        });
    }
};

int destroyed_in_run() {
    Drains service;
    Runtime client = Runtime::create({.log_level = LogLevel::off}).value();
    auto runtime = std::make_unique<Runtime>(
        Runtime::create({.drain_timeout = 60s, .log_level = LogLevel::off}).value());
    const std::string uri = fresh_uri();
    if (!runtime->serve(service, uri).ok()) return 1;
    const Channel channel = client.connect(uri).value();
    channel.call(echo_method, {}, {}, [](const Status&, ByteView) {});
    service.begun.get_future().wait();
    std::thread runs([&] { (void)runtime->run(); });
    runtime->stop();
    service.draining.get_future().wait();
    runtime.reset();
    runs.join();
    return 0;
}

int destroyed_in_turn_until() {
    auto runtime = std::make_unique<Runtime>(
        Runtime::create({.log_level = LogLevel::off, .manual = true}).value());
    std::promise<void> is_in;
    std::thread turns([&, told = false]() mutable {
        runtime->turn_until(
            [&] { return !std::exchange(told, true) && (is_in.set_value(), false); }, 60s);
    });
    is_in.get_future().wait();
    runtime.reset();
    turns.join();
    return 0;
}

int destroyed_in_block_on() {
    auto runtime = std::make_unique<Runtime>(
        Runtime::create({.log_level = LogLevel::off, .manual = true}).value());
    std::promise<void> is_in;
    struct {
        Task<void> operator()(std::promise<void>& in) const {
            in.set_value();
            (void)co_await sleep_for(60s);
        }
    } sleeps;
    std::thread waits([&] { runtime->block_on(sleeps(is_in)); });
    is_in.get_future().wait();
    runtime.reset();
    waits.join();
    return 0;
}

TEST_CASE("a runtime destroyed while a thread is in it ends the program with a message") {
    if (!can_start_threads_in_child) return;
    struct {
        const char* call;
        int (*body)();
    } const cases[] = {{"Runtime::run()", destroyed_in_run},
                       {"Runtime::turn_until()", destroyed_in_turn_until},
                       {"Runtime::block_on()", destroyed_in_block_on}};
    for (const auto& one : cases) {
        const ChildOutput output = output_in_time(one.body);
        CAPTURE(one.call, output.text);
        CHECK(output.end == -SIGABRT);
        CHECK(output.text.find(std::string("while a thread is in ") + one.call) !=
              std::string::npos);
        CHECK(output.text.find("join that thread first") != std::string::npos);
    }
}

// ---- handlers that block -----------------------------------------------------------------------

struct Blocks final : Service {
    std::promise<void> begun, release;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_method, [this](Call call) {
            begun.set_value();
            release.get_future().wait();
            call.reply({});
        });
    }
};

struct Blocked {
    LogCapture log_capture;
    Blocks service;
    std::unique_ptr<Runtime> server;
    Runtime client = Runtime::create({.log_level = LogLevel::off}).value();
    Channel channel;
    std::future<Status> run;
    explicit Blocked(RuntimeOptions options) {
        options.log_sink = log_capture.sink();
        server = std::make_unique<Runtime>(Runtime::create(std::move(options)).value());
        const std::string uri = fresh_uri();
        REQUIRE(server->serve(service, uri).ok());
        channel = client.connect(uri).value();
        run = std::async(std::launch::async, [this] { return server->run(); });
        channel.call(echo_method, {}, {}, [](const Status&, ByteView) {});
        service.begun.get_future().wait();
    }
};

TEST_CASE("a handler that blocks the context's thread is named in the log while it does") {
    Blocked blocked({});
    CHECK(
        blocked.log_capture.wait_for("and still is; the last handler that began: test.Echo/Echo"));
    CHECK(blocked.server->state().find("test.Echo/Echo") != std::string::npos);
    blocked.service.release.set_value();
    blocked.server->stop();
    CHECK(blocked.run.get().ok());
    CHECK(blocked.log_capture.count("and still is") == 1);
}

TEST_CASE("run() ends in time although a handler blocks, and the destructor waits for it") {
    Blocked blocked({.drain_timeout = 200ms});
    blocked.server->stop();
    const bool has_ended = blocked.run.wait_for(test_timeout) == std::future_status::ready;
    CHECK(has_ended);
    if (has_ended) {
        const Status status = blocked.run.get();
        CAPTURE(status.to_string());
        CHECK(status.code() == Code::deadline_exceeded);
        CHECK(status.text().find("the last handler that began: test.Echo/Echo") !=
              std::string_view::npos);
        std::thread ends([&] { blocked.server.reset(); });
        CHECK(blocked.log_capture.wait_for("the end of the runtime waits for its thread"));
        blocked.service.release.set_value();
        ends.join();
    } else {
        blocked.service.release.set_value();
        blocked.run.wait();
    }
}

// ---- several runtimes --------------------------------------------------------------------------

int two_runs() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, signal);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    LogCapture log_capture[2];
    std::vector<Runtime> runtimes;
    for (LogCapture& one : log_capture) {
        runtimes.push_back(
            Runtime::create({.state_signal = SIGUSR1, .log_sink = one.sink()}).value());
    }
    std::future<Status> runs[2];
    for (int i = 0; i < 2; ++i) {
        runs[i] = std::async(std::launch::async, [&, i] { return runtimes[i].run(); });
    }
    const std::string state = "as asked by a signal";
    // Until both are in run().
    while (!log_capture[0].wait_for(state, 1ms) || !log_capture[1].wait_for(state, 1ms)) {
        ::kill(::getpid(), SIGUSR1);
    }
    ::kill(::getpid(), SIGTERM);
    return runs[0].get().ok() && runs[1].get().ok() ? 0 : 1;
}

TEST_CASE("one SIGTERM ends each run() of the process") {
    if (!can_start_threads_in_child) return;
    const ChildOutput output = output_in_time(two_runs);
    CAPTURE(output.text);
    CHECK(output.end == 0);
}

int two_drains() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT}) sigaddset(&signals, signal);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    Drains services[2];
    Runtime client = Runtime::create({.log_level = LogLevel::off}).value();
    std::vector<Runtime> runtimes;
    std::vector<std::future<Status>> runs;
    std::vector<Channel> channels;
    for (Drains& service : services) {
        runtimes.push_back(
            Runtime::create({.drain_timeout = 60s, .log_level = LogLevel::off}).value());
        const std::string uri = fresh_uri();
        if (!runtimes.back().serve(service, uri).ok()) return 1;
        channels.push_back(client.connect(uri).value());
        channels.back().call(echo_method, {}, {}, [](const Status&, ByteView) {});
        service.begun.get_future().wait();
    }
    for (Runtime& runtime : runtimes) {
        runs.push_back(std::async(std::launch::async, [&] { return runtime.run(); }));
        runtime.stop();
    }
    for (Drains& service : services) service.draining.get_future().wait();
    ::kill(::getpid(), SIGTERM);
    for (auto& run : runs) {
        if (run.get().code() != Code::cancelled) return 2;
    }
    return 0;
}

TEST_CASE("a signal while several run() drain ends the wait of each") {
    if (!can_start_threads_in_child) return;
    const ChildOutput output = output_in_time(two_drains);
    CAPTURE(output.text);
    CHECK(output.end == 0);
}

// ---- closed descriptors ------------------------------------------------------------------------

int closed_before_a_turn(bool manual, const char* scheme) {
    Echo service;
    Runtime runtime = Runtime::create({.log_level = LogLevel::off, .manual = manual}).value();
    const std::string uri = scheme == std::string("tcp") ? "tcp://127.0.0.1:0" : fresh_uri();
    if (!runtime.serve(service, uri).ok()) return 1;
    close_descriptors();
    if (manual) return runtime.turn_until([] { return false; }, 60s) ? 1 : 2;
    std::promise<void> ran;
    while (true) {
        runtime.executor().post([] {});
        std::this_thread::yield();
    }
}

int closed_before_run() {
    Runtime runtime = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
    close_descriptors();
    return runtime.run().ok() ? 1 : 2;
}

int closed_before_stop() {
    Runtime runtime = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
    close_descriptors();
    runtime.stop();
    return 1;
}

int closed_under_a_follower() {
    char path[] = "/tmp/weft-run-end-XXXXXX";
    const int fd = ::mkstemp(path);
    const std::string text = GroupView::make("followed", 1, {{0, {"sm://x"}}}).value().to_json();
    if (fd < 0 || ::write(fd, text.data(), text.size()) < 0) return 1;
    const std::unique_ptr<GroupAuthority> authority = group_file(path);
    std::promise<void> follows;
    const Status status =
        authority->follow([&](const GroupView&) { follows.set_value(); }, nullptr);
    ::unlink(path);
    if (!status.ok()) return 2;
    follows.get_future().wait();
    close_descriptors();
    while (true) ::pause();
}

TEST_CASE("a runtime with descriptors that the program closed ends the program with a message") {
    const std::function<int()> cases[] = {
        [] { return closed_before_a_turn(false, "sm"); },
        [] { return closed_before_a_turn(false, "tcp"); },
        [] { return closed_before_a_turn(true, "sm"); },
        [] { return closed_before_a_turn(true, "tcp"); },
        closed_before_run,
        closed_before_stop,
        closed_under_a_follower,
    };
    for (const auto& one : cases) {
        const ChildOutput output = output_in_time(one);
        CAPTURE(&one - cases, output.text);
        CHECK(output.end == -SIGABRT);
        CHECK(output.text.find("a descriptor of a runtime: the program closed it") !=
              std::string::npos);
    }
}

}  // namespace
}  // namespace weft::run_end_test
