// A server in a child process on every available transport, its resource usage, and an honest
// client that hostile peers must never affect.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <weft/runtime.h>

#include "base/unique_fd.h"
#include "support/catch.h"
#include "support/contexts.h"
#include "support/test_timeout.h"

namespace weft::test {

// Memory that may be read, and methods that are worth an attack.
struct LiveService final : Service {
    static constexpr MethodId echo{"test.Live/Echo"};
    static constexpr MethodId hold{"test.Live/Hold"};    // Held until the client gives up.
    static constexpr MethodId pull{"test.Live/Pull"};    // Reads the memory of the reference.
    static constexpr MethodId vault{"test.Live/Vault"};  // Replies "intact", or not.
    static constexpr std::size_t vault_bytes = 4096;

    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo, [](Call call) { call.reply(call.request()); });
        registrar.add(hold, [this](Call call) {
            const auto at = held_.insert(held_.end(), std::move(call));
            at->on_cancel([this, at] { held_.erase(at); });
        });
        registrar.add(pull, [this](Call call) { read(std::move(call)); });
        registrar.add(vault, [this](Call call) {
            bool intact = true;
            for (const std::byte b : secret.bytes()) intact = intact && b == std::byte{0x5e};
            call.reply(as_bytes(intact ? "intact" : "written to"));
        });
    }

    Buffer secret;

  private:
    void read(Call call) {
        const Result<RegionRef> ref = RegionRef::decode(call.request());
        if (!ref) return call.fail(ref.status());
        if (ref->length == 0 || ref->length > secret.size()) {
            return call.fail(rejected(Code::out_of_range, "a size that is not served"));
        }
        Buffer into = runtime->allocate(ref->length).value();
        auto kept = std::make_shared<Call>(std::move(call));
        kept->get(*ref, 0, into, [kept, into](const Status& status) {
            if (status.ok()) return kept->reply(into.bytes());
            kept->fail(status);
        });
    }

    std::list<Call> held_;

  public:
    Runtime* runtime = nullptr;
};

// Resources that a process uses.
struct Usage {
    std::size_t descriptors = 0;
    std::size_t threads = 0;
    std::size_t resident_kib = 0;

    static Usage of(pid_t pid) {
        namespace fs = std::filesystem;
        const std::string at = "/proc/" + std::to_string(pid);
        const auto count = [](const fs::path& path) {
            return static_cast<std::size_t>(
                std::distance(fs::directory_iterator(path), fs::directory_iterator()));
        };
        Usage usage{count(at + "/fd"), count(at + "/task"), 0};
        std::ifstream status(at + "/status");
        for (std::string line; std::getline(status, line);) {
            if (line.starts_with("VmRSS:")) usage.resident_kib = std::stoul(line.substr(6));
        }
        return usage;
    }
};

class LiveServer {
  public:
    explicit LiveServer(const std::vector<std::string>& uris, std::size_t peers_max = 4096) {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ == 0) serve(uris, peers_max, ends[1]);
        ::close(ends[1]);
        const base::UniqueFd from(ends[0]);
        REQUIRE(::read(from.get(), &vault_, sizeof vault_) == sizeof vault_);
        std::string text(4096, '\0');
        const ssize_t got = ::read(from.get(), text.data(), text.size());
        REQUIRE(got > 0);
        std::istringstream lines(text.substr(0, static_cast<std::size_t>(got)));
        for (std::string line; std::getline(lines, line);) addresses_.push_back(line);
        REQUIRE(addresses_.size() == uris.size());
    }
    ~LiveServer() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    LiveServer(const LiveServer&) = delete;
    LiveServer& operator=(const LiveServer&) = delete;

    const std::vector<std::string>& addresses() const { return addresses_; }
    Usage usage() const { return Usage::of(pid_); }
    // A reference to the memory that it exposes, for reading only.
    const RegionRef& vault() const { return vault_; }

  private:
    [[noreturn]] static void serve(const std::vector<std::string>& uris, std::size_t peers_max,
                                   int ready) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        Result<Runtime> runtime = Runtime::create(
            {.contexts = server_contexts(), .peers_max = peers_max, .log_level = LogLevel::off});
        if (!runtime) ::_exit(1);
        const Buffer secret = runtime->allocate(LiveService::vault_bytes).value();
        std::memset(secret.bytes().data(), 0x5e, secret.size());
        const Status added = runtime->add([&](const Here&) {
            auto service = std::make_unique<LiveService>();
            service->runtime = &*runtime;
            service->secret = secret;
            return service;
        });
        if (!added.ok()) ::_exit(1);
        std::string text;
        for (const std::string& uri : uris) {
            if (!runtime->listen(uri).ok()) ::_exit(1);
            text += runtime->addresses().back() + "\n";
        }
        const Region region = runtime->expose(secret, {.access = Access::read}).value();
        const RegionRef ref = region.ref();
        if (::write(ready, &ref, sizeof ref) < 0 || ::write(ready, text.data(), text.size()) < 0) {
            ::_exit(1);
        }
        ::close(ready);
        (void)runtime->run();
        ::_exit(0);
    }

    pid_t pid_ = -1;
    RegionRef vault_;
    std::vector<std::string> addresses_;
};

// Calls one address after the other during its lifetime, and keeps one call held all the time.
class HonestClient {
  public:
    explicit HonestClient(std::vector<std::string> uris) : thread_([this, uris] { run(uris); }) {}
    ~HonestClient() { stop(); }
    HonestClient(const HonestClient&) = delete;
    HonestClient& operator=(const HonestClient&) = delete;

    // True: that many more calls succeed.
    bool is_served(std::uint64_t calls) {
        const std::uint64_t wanted = served_ + calls;
        const auto end = std::chrono::steady_clock::now() + test_timeout;
        while (served_ < wanted && !failed_) {
            if (std::chrono::steady_clock::now() > end) return false;
            std::this_thread::sleep_for(1ms);
        }
        return !failed_;
    }
    // Stops and returns the first error; empty: none.
    std::string wrong() {
        stop();
        return wrong_;
    }

  private:
    void stop() {
        stop_ = true;
        if (thread_.joinable()) thread_.join();
    }
    void fail(const std::string& what) {
        if (!failed_) wrong_ = what;
        failed_ = true;
    }
    void run(const std::vector<std::string>& uris) {
        Runtime runtime = Runtime::create({.manual = true}).value();
        std::vector<Channel> channels;
        int ended = 0;
        for (const std::string& uri : uris) {
            channels.push_back(runtime.connect(uri).value());
            channels.back().call(LiveService::hold, {}, {.timeout = no_timeout},
                                 [&](const Status&, ByteView) { ++ended; });
        }
        for (std::size_t turn = 0; !stop_ && !failed_; ++turn) {
            bool done = false;
            const std::string text = "honest " + std::to_string(turn);
            channels[turn % channels.size()].call(LiveService::echo, as_bytes(text),
                                                  {.timeout = test_timeout},
                                                  [&](const Status& status, ByteView reply) {
                                                      done = true;
                                                      if (!status.ok()) fail(status.to_string());
                                                      else if (as_text(reply) != text)
                                                          fail("another's answer");
                                                  });
            if (!runtime.turn_until([&] { return done; }, 2 * test_timeout)) fail("no completion");
            ++served_;
        }
        if (ended > 0) fail("a held call ended before its cancel");
    }

    std::atomic<bool> stop_{false}, failed_{false};
    std::atomic<std::uint64_t> served_{0};
    std::string wrong_;
    std::thread thread_;
};

}  // namespace weft::test
