// libfabric is loaded when it is needed: what is missing is told, and the program's signals stay
// its own.
#include <signal.h>

#include <atomic>
#include <thread>

#include "na/ofi/library.h"
#include "na/ofi/ofi.h"
#include "support/catch.h"

using namespace weft;

namespace {

void ignore_signal(int) {}

// nullptr: it can't be told. Any thread: none of Catch2's words in here.
void* handler_of(int signal) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0) return nullptr;
    return reinterpret_cast<void*>(action.sa_handler);
}

}  // namespace

TEST_CASE("ofi library: a host without libfabric is told so, and what to do") {
    na::ofi::Library library;
    const Status status = na::ofi::load("libfabric-of-nobody.so.1", library);
    CHECK(status.code() == Code::unavailable);
    CHECK(status.text().find("libfabric-of-nobody.so.1") != std::string_view::npos);
    CHECK(status.text().find("install libfabric1") != std::string_view::npos);
    CHECK(library.getinfo == nullptr);
}

TEST_CASE("ofi library: what is no libfabric is not taken for one") {
    na::ofi::Library library;
    const Status status = na::ofi::load("libpthread.so.0", library);
    CHECK(status.code() == Code::unavailable);
    CHECK(status.text().find("fi_getinfo") != std::string_view::npos);
}

TEST_CASE("ofi library: while it is loaded, signals are the program's as well") {
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

TEST_CASE("ofi library: signals are handled after it is loaded as they were before") {
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
