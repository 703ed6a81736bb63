// libfabric is loaded when it is needed: a missing one is reported, and the program's signal
// handlers stay.
#include <signal.h>

#include <atomic>
#include <thread>

#include "na/ofi/library.h"
#include "na/ofi/ofi.h"
#include "support/catch.h"

using namespace weft;

namespace {

void ignore_signal(int) {}

// nullptr when it can't be read. Called on any thread, so it uses no Catch2 macros.
void* handler_of(int signal) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0) return nullptr;
    return reinterpret_cast<void*>(action.sa_handler);
}

}  // namespace

TEST_CASE("ofi library: the error without libfabric names the library and its package") {
    na::ofi::Library library;
    const Status status = na::ofi::load("libfabric-missing.so.1", library);
    CHECK(status.code() == Code::unavailable);
    CHECK(status.text().find("libfabric-missing.so.1") != std::string_view::npos);
    CHECK(status.text().find("install libfabric1") != std::string_view::npos);
    CHECK(library.getinfo == nullptr);
}

TEST_CASE("ofi library: a library without fi_getinfo is refused") {
    na::ofi::Library library;
    const Status status = na::ofi::load("libpthread.so.0", library);
    CHECK(status.code() == Code::unavailable);
    CHECK(status.text().find("fi_getinfo") != std::string_view::npos);
}

TEST_CASE("ofi library: signal handlers of the program stay in force while it loads") {
    void* const terminates = handler_of(SIGTERM);
    void* const breaks = handler_of(SIGSEGV);
    std::atomic<bool> ends{false};
    std::atomic<int> changes{0};
    std::thread looks([&] {
        while (!ends) changes += handler_of(SIGTERM) != terminates || handler_of(SIGSEGV) != breaks;
    });
    CHECK(na::ofi::load_library().ok());
    ends = true;
    looks.join();
    CHECK(changes == 0);
}

TEST_CASE("ofi library: loading leaves signal handlers and the signal mask as they were") {
    struct sigaction mine {};
    mine.sa_handler = ignore_signal;
    struct sigaction before {};
    REQUIRE(::sigaction(SIGTERM, &mine, &before) == 0);
    void* const interrupted = handler_of(SIGINT);
    void* const broken = handler_of(SIGBUS);
    sigset_t blocked, still;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    REQUIRE(na::ofi::load_library().ok());
    ::pthread_sigmask(SIG_SETMASK, nullptr, &still);
    CHECK(handler_of(SIGTERM) == reinterpret_cast<void*>(ignore_signal));
    CHECK(handler_of(SIGINT) == interrupted);
    CHECK(handler_of(SIGBUS) == broken);
    CHECK(::sigismember(&still, SIGTERM) == ::sigismember(&blocked, SIGTERM));
    CHECK(na::ofi::library().version() != 0);
    REQUIRE(::sigaction(SIGTERM, &before, nullptr) == 0);
}
