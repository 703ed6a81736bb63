// A listener that can accept no connection: too many of them wait, or too few descriptors are left.
#include "na/acceptor.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "na/socket_name.h"
#include "na/tcp/socket.h"
#include "support/bare_machine.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/no_descriptors.h"

using namespace weft;
using na::Acceptor;

namespace {

constexpr std::uint64_t id = 7;

struct Listener {
    base::UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
    base::UniqueFd socket =
        na::tcp::listen_at(*na::SocketName::from_numeric("127.0.0.1", 0), "test").value();
    Acceptor acceptor;
    std::vector<std::string> told;
    base::Log log{LogLevel::warning,
                  [this](LogLevel, std::string_view line) { told.emplace_back(line); }};

    bool is_ready() const {
        epoll_event event{};
        return ::epoll_wait(epoll.get(), &event, 1, 0) == 1 && event.data.u64 == id &&
               (event.events & EPOLLIN) != 0;
    }
    base::UniqueFd connect() const {
        return na::tcp::start_connecting(na::tcp::local_name(socket.get())).value();
    }
    bool open(na::AcceptDuty duty = {}) {
        return acceptor.open(epoll.get(), socket.get(), id, refuse, duty);
    }
    static void refuse(int socket, const Status& why) {
        const std::string_view text = why.text();
        (void)::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    }
    static std::string answer(const base::UniqueFd& client) {
        char text[256];
        const ssize_t got = ::recv(client.get(), text, sizeof text, 0);
        return {text, got > 0 ? static_cast<std::size_t>(got) : 0};
    }
    base::UniqueFd accept(TimePoint now) { return acceptor.accept(now, log, "here"); }
};

}  // namespace

TEST_CASE("a listener without free descriptors refuses with a reason and logs it once a second") {
    Listener here;
    REQUIRE(here.open());
    const base::UniqueFd clients[] = {here.connect(), here.connect(), here.connect(),
                                      here.connect()};
    REQUIRE(here.is_ready());
    const TimePoint now{};
    {
        const test::NoDescriptors none;
        for (int i = 0; i < 3; ++i) CHECK_FALSE(here.accept(now));
        REQUIRE(here.told.size() == 1);
        CHECK(here.told[0].find("refused 1") != std::string::npos);
        REQUIRE(here.is_ready());
        CHECK_FALSE(here.accept(now + Acceptor::log_interval));
        REQUIRE(here.told.size() == 2);
        CHECK(here.told[1].find("refused 3") != std::string::npos);
        CHECK_FALSE(here.is_ready());
    }
    for (const base::UniqueFd& client : clients) {
        ::fcntl(client.get(), F_SETFL, 0);  // Waits for the bytes in flight.
        CHECK(here.answer(client).find("ulimit -n") != std::string::npos);
    }
    CHECK(here.acceptor.next_deadline() == never);
    const base::UniqueFd later = here.connect();
    CHECK(here.accept(now));
}

TEST_CASE(
    "a listener has a descriptor for refusals before it accepts in place of another context") {
    na::DoorParts parts;
    parts.contexts = 8;
    parts.post = [](std::uint16_t, Function<void()>) {};
    const auto door = std::make_shared<na::Door>(std::move(parts));
    Listener here;
    REQUIRE(here.open({*door, 1}));
    const base::UniqueFd client = here.connect();
    {
        const test::NoDescriptors none;
        CHECK_FALSE(here.accept(TimePoint{}));
    }
    REQUIRE(here.told.size() == 1);
    CHECK(here.told[0].find("refused 1") != std::string::npos);
}

TEST_CASE("a listener logs that seccomp refuses accept(), and lets its thread sleep") {
    for (const unsigned error : {EPERM, EACCES, ENOSYS}) {
        INFO(error);
        const int end = test::end_of_child([&] {
            Listener here;
            if (!here.open()) return 1;
            const base::UniqueFd client = here.connect();
            if (!here.is_ready()) return 2;
            if (!test::refuse_call(SYS_accept4, error)) return 10;
            if (here.accept(TimePoint{}) || here.is_ready()) return 3;
            if (here.told.size() != 1) return 4;
            here.acceptor.serve(TimePoint{} + Acceptor::retry_after);
            if (!here.is_ready()) return 5;
            if (here.accept(TimePoint{} + Acceptor::retry_after) || here.is_ready()) return 6;
            return here.told.size() == 1 ? 0 : 7;  // Logged once a second.
        });
        CHECK(end == 0);
    }
}

TEST_CASE("a listener that can't even drop a connection stops polling and resumes after a while") {
    Listener here;
    const base::UniqueFd client = here.connect();
    const TimePoint now{};
    {
        const test::NoDescriptors
            none;  // None for the spare descriptor either, as when another thread took it.
        REQUIRE(here.open());
        REQUIRE(here.is_ready());
        CHECK_FALSE(here.accept(now));
        CHECK_FALSE(here.is_ready());
        CHECK(here.acceptor.next_deadline() == now + Acceptor::retry_after);
        here.acceptor.serve(now + Acceptor::retry_after - 1ns);
        CHECK_FALSE(here.is_ready());
        here.acceptor.serve(now + Acceptor::retry_after);
        CHECK(here.is_ready());
        CHECK_FALSE(here.accept(now + Acceptor::retry_after));
    }
    here.acceptor.serve(now + 2 * Acceptor::retry_after);
    REQUIRE(here.is_ready());
    CHECK(here.accept(now + 2 * Acceptor::retry_after));
    REQUIRE(here.told.size() == 1);
    CHECK(here.told[0].find("can't accept") != std::string::npos);
}
