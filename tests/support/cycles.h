// A server in a child process that is killed or stopped repeatedly at one address, and its client.
//
// CYCLES=n runs n cycles instead of 20; TEST_CONTEXTS=n gives the server n contexts, and the client
// a channel to each.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <weft/runtime.h>

#include "base/random.h"
#include "support/catch.h"
#include "support/contexts.h"
#include "support/seed.h"
#include "support/test_timeout.h"

namespace weft::test {

class CycledServer {
  public:
    // Makes the service of a context, in the process of the server; nullptr: there is none.
    using Make = std::function<std::unique_ptr<Service>(Runtime&)>;

    CycledServer(std::string uri, Make make) : uri_(std::move(uri)), make_(std::move(make)) {
        start();
    }
    ~CycledServer() { kill(); }

    void start() {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ == 0) serve(ends[1]);
        ::close(ends[1]);
        char buffer[256];
        const ssize_t got = ::read(ends[0], buffer, sizeof buffer);
        ::close(ends[0]);
        REQUIRE(got > 0);
        uri_.assign(buffer, static_cast<std::size_t>(got));  // Keeps this port from now on.
    }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    void stop() const { ::kill(pid_, SIGSTOP); }
    void go_on() const { ::kill(pid_, SIGCONT); }
    const std::string& uri() const { return uri_; }

  private:
    [[noreturn]] void serve(int ready) const {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        Result<Runtime> runtime = Runtime::create({.contexts = server_contexts()});
        if (!runtime) ::_exit(1);
        const Status added = runtime->add([&](const Here&) {
            std::unique_ptr<Service> service = make_(*runtime);
            if (!service) ::_exit(1);
            return service;
        });
        if (!added.ok()) ::_exit(1);
        // The port of the previous life may linger for a moment.
        Status served;
        for (int tries = 0; tries < 200; ++tries) {
            served = runtime->listen(uri_);
            if (served.ok()) break;
            ::usleep(10'000);
        }
        if (!served.ok()) ::_exit(1);
        const std::string address = runtime->addresses().front();
        if (::write(ready, address.data(), address.size()) < 0) ::_exit(1);
        ::close(ready);
        (void)runtime->run();
        ::_exit(0);
    }

    std::string uri_;
    const Make make_;
    pid_t pid_ = -1;
};

// Progress is a count that rises with the server's replies.
class Cycles {
  public:
    using Progress = std::function<std::uint64_t()>;

    Cycles(const std::string& uri, CycledServer::Make make) : server(uri, std::move(make)) {
        const Channel any = client.connect(server.uri()).value();
        for (unsigned k = 0; k < server_contexts(); ++k) {
            channels.push_back(server_contexts() == 1 ? any : any.on(k));
        }
    }

    static std::vector<std::string> addresses() {
        return {"sm://cycles-" + std::to_string(::getpid()), "tcp://127.0.0.1:0"};
    }

    void kill_often(const Progress& progress) {
        for (std::uint64_t i = 0; i < count; ++i) {
            run_for(some(100ms));
            server.kill();
            run_for(some(50ms));
            server.start();
            run_until_served(progress);
        }
    }
    void stop_often(const Progress& progress) {
        for (std::uint64_t i = 0; i < count; ++i) {
            run_for(some(50ms));
            server.stop();
            // Usually shorter than the silence that ends a connection.
            run_for(i % 10 == 9 ? 3500ms : some(300ms));
            server.go_on();
            run_until_served(progress);
        }
    }

    const std::uint64_t seed = seed_of(0);
    const std::uint64_t count = setting("CYCLES", 20);
    Runtime client = Runtime::create({.manual = true}).value();
    CycledServer server;
    std::vector<Channel> channels;  // One for each context of the server.

  private:
    void run_for(Duration time) {
        client.turn_until([] { return false; }, time);
    }
    void run_until_served(const Progress& progress) {
        const std::uint64_t before = progress();
        REQUIRE(client.turn_until([&] { return progress() > before + 64; }, test_timeout));
    }
    Duration some(Duration most) {
        return Duration(
            static_cast<std::int64_t>(random_.next() % static_cast<std::uint64_t>(most.count())));
    }

    base::SeededRandom random_{seed};
};

}  // namespace weft::test
