// Thread caches, programs with short-lived threads, and the loader's lock.
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <weft/sleep.h>
#include <weft/thread_cache.h>

#include "support/child.h"
#include "support/echo.h"

namespace weft::thread_cache_test {
namespace {

using namespace weft::test;

std::string ends;  // The destructors, in the order of their calls.

struct NotesEnd {
    ~NotesEnd() {
        ends += "object ";
        static constinit thread_local detail::ThreadCache late{
            [](detail::ThreadCache&) noexcept { ends += "late "; }};
        CHECK(detail::register_thread_cache(late));
    }
};

TEST_CASE("the cache of a thread is released after its thread_local objects") {
    ends.clear();
    std::thread([] {
        static constinit thread_local detail::ThreadCache kept{
            [](detail::ThreadCache& of) noexcept {
                ends += "kept ";
                CHECK_FALSE(detail::register_thread_cache(of));
            }};
        thread_local NotesEnd object;
        (void)object;
        CHECK(detail::register_thread_cache(kept));
        CHECK(kept.is_registered);
    }).join();
    CHECK(ends == "object late kept ");
}

Task<void> waits_long() { (void)co_await sleep_for(1h); }

// Its coroutines end after the thread's first function has returned. The sanitizer reports leaks.
struct PerThread {
    Runtime runtime = Runtime::create({.log_level = LogLevel::off, .manual = true}).value();
};

TEST_CASE("a thread_local runtime ends with its thread, with all its coroutines") {
    std::array<std::weak_ptr<api::RuntimeImpl>, 3> nodes;
    for (auto& node : nodes) {
        std::thread([&node] {
            thread_local PerThread own;
            for (int i = 0; i < 5; ++i) own.runtime.spawn(waits_long());
            own.runtime.turn();
            node = impl_of(own.runtime).weak_from_this();
        }).join();
        CHECK(node.expired());
    }
}

// ---- the loader's lock --------------------------------------------------------------------------

struct Loading {
    Runtime& client;
    std::string uri;
    Status status;
};
Loading* loading = nullptr;

Task<Status> asks(Channel channel) {
    const echo::v1::EchoClient stub(std::move(channel));
    const echo::v1::EchoRequest request = request_of("x");
    co_return (co_await stub.Later(request, {.timeout = 10s})).status();
}

Task<void> nothing() { co_return; }

void calls_back() {
    loading->status = loading->client.block_on(asks(loading->client.connect(loading->uri).value()));
}

TEST_CASE("threads of weft can send their first reply while a library is loading") {
    if (!can_start_threads_in_child) return;
    const ChildOutput output = output_of_child([] {
        ::alarm(20);
        EchoServer service;
        Runtime server = Runtime::create().value(), client = Runtime::create().value();
        Loading now{client, "sm://loading-" + std::to_string(::getpid()), {}};
        if (!server.serve(service, now.uri).ok()) return 1;
        client.block_on(nothing());  // The thread has started by then.
        loading = &now;
        char address[32];
        std::snprintf(address, sizeof address, "%llx",
                      reinterpret_cast<unsigned long long>(&calls_back));
        ::setenv("WEFT_TEST_CONSTRUCTOR", address, 1);
        now.status = fail(Code::unknown, "the constructor did not run");
        if (!::dlopen("libweft_test_constructor.so", RTLD_NOW)) return 2;
        (void)std::fprintf(stderr, "%s\n", now.status.to_string().c_str());
        return now.status.ok() ? 0 : 3;
    });
    CAPTURE(output.text);
    CHECK(output.end == 0);
}

// ---- the environment ----------------------------------------------------------------------------

TEST_CASE("a runtime without a libfabric address leaves the environment unchanged") {
    CHECK(end_of_child([] {
              ::unsetenv("FI_UNIVERSE_SIZE");
              ::unsetenv("IPATH_NO_BACKTRACE");
              const Runtime runtime = Runtime::create({.manual = true}).value();
              if (std::getenv("FI_UNIVERSE_SIZE") || std::getenv("IPATH_NO_BACKTRACE")) return 1;
              return 0;
          }) == 0);
}

}  // namespace
}  // namespace weft::thread_cache_test
