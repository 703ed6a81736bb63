// Mistakes of a program: each ends the program, or is refused, at once, with an error text that
// names the call and the remedy. Each runs in a child process because some end it.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include <weft/offload.h>

#include "support/child.h"
#include "support/echo.h"
#include "support/fresh_uri.h"
#include "support/open_files.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"

namespace misuse_test {

using namespace weft;
using namespace weft::test;

struct Mistake {
    const char* name;
    std::function<int()> make;
    int end;  // Of the process: the returned code, or minus a signal.
    std::vector<std::string> words;
};

void check(const Mistake& mistake) {
    check_mistake(mistake.name, mistake.make, mistake.end, mistake.words);
}

RuntimeOptions quiet() {
    RuntimeOptions options;
    options.log_level = LogLevel::off;
    return options;
}

RuntimeOptions by_hand() {
    RuntimeOptions options = quiet();
    options.manual = true;
    return options;
}

Task<int> seven() { co_return 7; }

Task<int> offloads_seven() {
    const auto work = [] { return 7; };
    co_return co_await offload(work);
}

// Runs `body` in a turn of a runtime with its own thread, and waits until it returns.
template <class Body>
int in_callback(Body body) {
    auto runtime = std::make_unique<Runtime>(Runtime::create(quiet()).value());
    std::promise<int> result;
    runtime->executor().post([&] { result.set_value(body(runtime)); });
    return result.get_future().get();
}

template <class Body>
int in_offloaded_work(Body body) {
    auto runtime = std::make_unique<Runtime>(Runtime::create(quiet()).value());
    std::promise<int> result;
    runtime->executor().offload([&] { result.set_value(body(runtime)); });
    return result.get_future().get();
}

template <class Body>
int in_manual_turn(Body body) {
    Runtime runtime = Runtime::create(by_hand()).value();
    int result = -1;
    runtime.executor().post([&] { result = body(runtime); });
    runtime.turn();
    return result;
}

// Writes the status of a call to standard error and returns its code.
int told(const Status& status) {
    const std::string text = status.to_string() + "\n";
    return ::write(STDERR_FILENO, text.data(), text.size()) > 0 ? static_cast<int>(status.code())
                                                                : -1;
}

template <class Body>
int thrown(Body body) {
    try {
        body();
    } catch (const std::logic_error& error) {
        return ::write(STDERR_FILENO, error.what(), std::strlen(error.what())) > 0 ? 1 : -1;
    }
    return 0;
}

constexpr int refused = static_cast<int>(Code::failed_precondition);

TEST_CASE("a call that would wait for its own thread ends the program with an error text") {
    using Owned = std::unique_ptr<Runtime>;
    const Mistake mistakes[] = {
        {"block_on in a callback",
         [] { return in_callback([](Owned& runtime) { return runtime->block_on(seven()); }); },
         -SIGABRT,
         {"Runtime::block_on()", "co_await"}},
        {"block_on in a callback, with options.manual",
         [] { return in_manual_turn([](Runtime& runtime) { return runtime.block_on(seven()); }); },
         -SIGABRT,
         {"Runtime::block_on()", "co_await"}},
        {"block_on in offloaded work",
         [] {
             return in_offloaded_work(
                 [](Owned& runtime) { return runtime->block_on(offloads_seven()); });
         },
         -SIGABRT,
         {"Runtime::block_on()", "offload", "co_await"}},
        {"run in a callback",
         [] { return in_callback([](Owned& runtime) { return told(runtime->run()); }); },
         refused,
         {"Runtime::run()", "Runtime::stop()"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

TEST_CASE("turning a runtime inside its turn, or one with its own thread, ends the program") {
    const Mistake mistakes[] = {
        {"turn_until in a callback",
         [] {
             return in_manual_turn(
                 [](Runtime& runtime) { return runtime.turn_until([] { return true; }, 1s); });
         },
         -SIGABRT,
         {"Runtime::turn_until()", "callback"}},
        {"turn in a callback",
         [] { return in_manual_turn([](Runtime& runtime) { return int(runtime.turn()); }); },
         -SIGABRT,
         {"Runtime::turn()", "callback"}},
        {"turn_until of a runtime with a thread of its own",
         [] {
             Runtime runtime = Runtime::create(quiet()).value();
             return int(runtime.turn_until([] { return true; }, 1s));
         },
         -SIGABRT,
         {"Runtime::turn_until()", "RuntimeOptions::manual"}},
        {"arm of a runtime with a thread of its own",
         [] {
             Runtime runtime = Runtime::create(quiet()).value();
             return int(runtime.arm());
         },
         -SIGABRT,
         {"Runtime::arm()", "RuntimeOptions::manual"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

TEST_CASE("a runtime that is destroyed by its own work ends the program with an error text") {
    using Owned = std::unique_ptr<Runtime>;
    const Mistake mistakes[] = {
        {"destroyed in a callback",
         [] {
             return in_callback([](Owned& runtime) {
                 runtime.reset();
                 return 1;
             });
         },
         -SIGABRT,
         {"Runtime::~Runtime()", "Runtime::stop()"}},
        {"replaced in a callback",
         [] {
             return in_callback([](Owned& runtime) {
                 *runtime = Runtime::create(quiet()).value();
                 return 1;
             });
         },
         -SIGABRT,
         {"Runtime::~Runtime()", "Runtime::stop()"}},
        {"destroyed in offloaded work",
         [] {
             return in_offloaded_work([](Owned& runtime) {
                 runtime.reset();
                 return 1;
             });
         },
         -SIGABRT,
         {"Runtime::~Runtime()", "offload", "Runtime::stop()"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

template <class Body>
int with_channel(Body body) {
    Runtime runtime = Runtime::create(by_hand()).value();
    const Channel channel = runtime.connect("sm://absent").value();
    body(runtime, channel);
    return int(runtime.turn_until([] { return false; }, 50ms));
}

struct NoHandler final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_method, std::function<void(Call)>());
    }
};

// Calls with an empty completion in its handler.
struct Asks final : Service {
    Channel to;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_method, [this](Call call) {
            to.call(echo_method, {}, {}, nullptr);
            call.reply({});
        });
    }
};

TEST_CASE("an empty completion is refused with the name of the call, wherever it is made") {
    const std::function<void(const Status&, ByteView)> no_completion;
    const Mistake mistakes[] = {
        {"a completion that is an empty std::function",
         [&] {
             return with_channel([&](Runtime&, const Channel& channel) {
                 channel.call(echo_method, {}, {}, Completion(no_completion));
             });
         },
         -SIGABRT,
         {"Channel::call()", "completion"}},
        {"a completion that is nullptr",
         [&] {
             return with_channel([&](Runtime&, const Channel& channel) {
                 channel.call(echo_method, {}, {}, nullptr);
             });
         },
         -SIGABRT,
         {"Channel::call()", "completion"}},
        {"an empty completion on another thread",
         [&] {
             return with_channel([&](Runtime& runtime, const Channel& channel) {
                 runtime.turn();
                 std::thread([&] { channel.call(echo_method, {}, {}, nullptr); }).join();
             });
         },
         -SIGABRT,
         {"Channel::call()", "completion"}},
        {"an empty completion of a handler's call",
         [&] {
             Asks service;
             Runtime runtime = Runtime::create(by_hand()).value();
             const Channel channel = runtime.connect("sm://absent").value();
             service.to = channel;
             const std::string uri = "sm://misuse-" + std::to_string(::getpid());
             if (!runtime.serve(service, uri).ok()) return 1;
             CallOutcome outcome;
             const Channel asking = runtime.connect(uri).value();
             asking.call(echo_method, {}, {}, outcome.done());
             return int(runtime.turn_until([&] { return outcome.completions > 0; }, test_timeout));
         },
         -SIGABRT,
         {"Channel::call()", "completion"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

TEST_CASE("an empty callback, handler or work is refused with the name of the call") {
    const std::function<void()> nothing;
    const Mistake mistakes[] = {
        {"a stub's callback that is an empty std::function",
         [&] {
             return with_channel([&](Runtime&, const Channel& channel) {
                 const std::function<void(const Status&, const echo::v1::EchoReply&)> none;
                 echo::v1::EchoClient(channel).Now(request_of("x"), {}, none);
             });
         },
         -SIGABRT,
         {"empty function"}},
        {"an empty completion of a transfer",
         [&] {
             return with_channel([&](Runtime&, const Channel& channel) {
                 channel.get({}, 0, {}, {}, std::function<void(const Status&)>());
             });
         },
         -SIGABRT,
         {"Channel::get()", "completion"}},
        {"posted work that is empty",
         [&] {
             return with_channel(
                 [&](Runtime& runtime, const Channel&) { runtime.executor().post(nothing); });
         },
         -SIGABRT,
         {"Executor::post()", "empty"}},
        {"offloaded work that is empty",
         [&] {
             return with_channel(
                 [&](Runtime& runtime, const Channel&) { runtime.executor().offload(nothing); });
         },
         -SIGABRT,
         {"Executor::offload()", "empty"}},
        {"a condition that is empty",
         [&] {
             return with_channel([&](Runtime& runtime, const Channel&) {
                 runtime.turn_until(std::function<bool()>(), 1s);
             });
         },
         -SIGABRT,
         {"Runtime::turn_until()", "empty"}},
        {"a handler that is empty",
         [&] {
             NoHandler service;
             Runtime runtime = Runtime::create(by_hand()).value();
             return told(runtime.add(service));
         },
         static_cast<int>(Code::invalid_argument),
         {std::string(echo_method.name), "handler"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

TEST_CASE("a null pointer to offload, spawn or on_change is refused with the name of the call") {
    const Mistake mistakes[] = {
        {"work for a coroutine to offload that is a null pointer",
         [&] {
             return with_channel([&](Runtime&, const Channel&) {
                 int (*const none)() = nullptr;
                 (void)weft::offload(none);
             });
         },
         -SIGABRT,
         {"offload()", "empty"}},
        {"a null pointer to spawn",
         [&] {
             return with_channel([&](Runtime& runtime, const Channel&) {
                 Task<void> (*const none)() = nullptr;
                 runtime.spawn(none);
             });
         },
         -SIGABRT,
         {"Runtime::spawn()", "empty"}},
        {"a null pointer to spawn on a context",
         [&] {
             return with_channel([&](Runtime& runtime, const Channel&) {
                 Task<void> (*const none)() = nullptr;
                 runtime.context(0).spawn(none);
             });
         },
         -SIGABRT,
         {"ContextRef::spawn()", "empty"}},
        {"a null pointer to run on all contexts",
         [&] {
             return with_channel([&](Runtime& runtime, const Channel&) {
                 int (*const none)(unsigned) = nullptr;
                 (void)runtime.on_all(none);
             });
         },
         -SIGABRT,
         {"Runtime::on_all()", "empty"}},
        {"an empty listener for a group's changes",
         [&] {
             return with_channel([&](Runtime& runtime, const Channel&) {
                 const GroupView view =
                     GroupView::make("g", 1, {{.rank = 0, .uris = {"sm://absent"}}}).value();
                 runtime.group(view).value().on_change(nullptr);
             });
         },
         -SIGABRT,
         {"Group::on_change()", "empty"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

// One call, held by its service; `body` uses it on another thread than the runtime's.
int with_call_elsewhere(const std::function<void(Call&)>& body) {
    Echo service;
    service.hold = true;
    CallOutcome outcome;
    Runtime runtime = Runtime::create(by_hand()).value();
    const std::string uri = "sm://misuse-" + std::to_string(::getpid());
    if (!runtime.serve(service, uri).ok()) return 1;
    const Channel channel = runtime.connect(uri).value();
    channel.call(echo_method, {}, {}, outcome.done());
    if (!runtime.turn_until([&] { return !service.held.empty(); }, test_timeout)) return 2;
    std::thread([&] { body(service.held.front()); }).join();
    service.held.clear();
    return 0;
}

TEST_CASE("answering a call on a thread that does not turn its runtime ends the program") {
    const auto mistake = [](const char* name, const std::function<void(Call&)>& body) {
        check({name,
               [&body] { return with_call_elsewhere(body); },
               -SIGABRT,
               {name, "Executor::post()"}});
    };
    mistake("Call::reply()", [](Call& call) { call.reply({}); });
    mistake("Call::reply_with()", [](Call& call) { call.reply_with(BodyWriter::of({})); });
    mistake("Call::fail()", [](Call& call) { call.fail(fail(Code::not_found, "none")); });
    mistake("Call::~Call()", [](Call& call) { const Call ends(std::move(call)); });
    mistake("Call::on_cancel()", [](Call& call) { call.on_cancel([] {}); });
    mistake("Call::on_drain()", [](Call& call) { call.on_drain([] {}); });
    mistake("Call::get()", [](Call& call) { call.get({}, 0, {}, [](const Status&) {}); });
}

std::optional<Runtime>& of_the_program(const RuntimeOptions& options) {
    static std::optional<Runtime> runtime(Runtime::create(options).value());
    return runtime;
}

constexpr MethodId held_method("test.Held/Hold");

// Its handler returns after the end of the runtime has waited for it and logged that.
struct HeldService final : Service {
    std::atomic<bool> is_held = false;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(held_method, [this](Call call) {
            is_held = true;
            std::this_thread::sleep_for(2500ms);
            call.reply({});
        });
    }
};

TEST_CASE("exit() in a callback of a static runtime logs a warning and exits with its code") {
    const Mistake mistakes[] = {
        {"in a callback",
         [] {
             of_the_program(quiet())->executor().post([] { std::exit(7); });
             while (true) ::pause();
             return 0;
         },
         7,
         {"exit()", "Runtime::stop()"}},
        {"in a turn of the main thread",
         [] {
             Runtime& runtime = *of_the_program(by_hand());
             runtime.executor().post([] { std::exit(7); });
             runtime.turn();
             return 0;
         },
         7,
         {"exit()", "Runtime::stop()"}},
        {"in a turn of another one, in a callback",
         [] {
             of_the_program(quiet())->executor().post([] {
                 Runtime inner = Runtime::create(by_hand()).value();
                 inner.executor().post([] { std::exit(7); });
                 inner.turn();
             });
             while (true) ::pause();
             return 0;
         },
         7,
         {"exit()", "Runtime::stop()"}},
        {"in offloaded work",
         [] {
             of_the_program(quiet())->executor().offload([] { std::exit(7); });
             while (true) ::pause();
             return 0;
         },
         7,
         {"exit()", "Runtime::stop()"}},
        {"in a log sink, of the end that waits for a handler",
         [] {
             static HeldService service;
             RuntimeOptions options = quiet();
             options.log_level = LogLevel::warning;
             options.log_sink = [](auto&&...) { std::exit(7); };
             Runtime runtime = Runtime::create(options).value();
             const std::string uri = test::fresh_uri("sm");
             if (!runtime.serve(service, uri).ok()) return 1;
             Channel channel = runtime.connect(uri).value();
             channel.call(held_method, {}, {}, [](auto&&...) {});
             while (!service.is_held) std::this_thread::yield();
             return 0;
         },
         7,
         {}},
        {"in the main thread, which is none of its own",
         [] {
             (void)of_the_program(quiet());
             std::exit(7);
             return 0;
         },
         7,
         {}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

}  // namespace misuse_test
