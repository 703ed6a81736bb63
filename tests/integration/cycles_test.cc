// A server is killed and restarted, or stopped and continued, again and again under load: every
// call completes once, what it says is what the server's journal says, and nothing ran twice.
//
// CYCLES=n runs so many instead of 20.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <weft/runtime.h>

#include "api/node.h"
#include "base/random.h"
#include "support/catch.h"
#include "support/patience.h"
#include "support/seed.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId write_once("test.Journal/Write");
constexpr MethodId write_again("test.Journal/WriteAgain");  // Idempotent, by its own word.

// Each call's number in a file, before its answer.
struct Journal final : Service {
    explicit Journal(const std::string& path)
        : file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) {}
    ~Journal() override { ::close(file); }
    void register_methods(MethodRegistrar& registrar) override {
        for (const MethodId& method : {write_once, write_again}) {
            registrar.add(method, [this](Call call) {
                const ByteView number = call.request();
                if (number.size() != 8 || ::write(file, number.data(), 8) != 8) return;
                call.reply(number);
            });
        }
    }
    const int file;
};

class Server {
  public:
    Server(std::string uri, std::string journal) : uri_(std::move(uri)), path_(std::move(journal)) {
        start();
    }
    ~Server() { kill(); }
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
        uri_.assign(buffer, static_cast<std::size_t>(got));  // The same port from now on.
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
        Journal journal(path_);
        Result<Runtime> runtime = Runtime::create();
        if (!runtime) ::_exit(1);
        // The port of the life before may linger for a moment.
        Status served;
        for (int tries = 0; tries < 200; ++tries) {
            served = runtime->serve(journal, uri_);
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
    const std::string path_;
    pid_t pid_ = -1;
};

// So many calls under way all the time.
class Load {
  public:
    Load(Runtime& runtime, const Channel& channel) : runtime_(runtime), channel_(channel) {}

    void start() {
        for (int i = 0; i < 64; ++i) next();
    }
    bool finish() {
        is_on_ = false;
        return runtime_.turn_until([this] { return open_ == 0; }, patience);
    }
    std::uint64_t answered() const { return answered_; }

    // Against what really ran.
    void judge(const std::string& journal) const {
        std::map<std::uint64_t, int> ran;
        std::ifstream file(journal, std::ios::binary);
        for (std::uint64_t number = 0; file.read(reinterpret_cast<char*>(&number), 8);) {
            ++ran[number];
        }
        std::uint64_t twice = 0, lies = 0, incomplete = 0;
        std::string first_lie;
        for (std::uint64_t number = 0; number < calls_.size(); ++number) {
            const Asked& asked = calls_[number];
            const int times = ran.contains(number) ? ran.at(number) : 0;
            incomplete += asked.completions != 1;
            twice += times > 1 && !asked.is_idempotent;
            const bool is_lie =
                (asked.status.effect() == Effect::applied && times == 0) ||
                (asked.status.effect() == Effect::none && times != 0) ||
                (asked.status.code() != Code::ok && asked.status.code() != Code::unavailable &&
                 asked.status.code() != Code::aborted);
            if (is_lie && lies++ == 0) first_lie = asked.status.to_string();
        }
        INFO(calls_.size() << " calls, " << answered_ << " answered, " << ran.size() << " ran; "
                           << first_lie);
        CHECK(incomplete == 0);
        CHECK(twice == 0);
        CHECK(lies == 0);
        CHECK(runtime_.node().client.is_balanced());
    }

  private:
    struct Asked {
        int completions = 0;
        bool is_idempotent = false;
        Status status;
    };

    void next() {
        if (!is_on_) return;
        const std::uint64_t number = calls_.size();
        const bool again = number % 4 == 0;
        calls_.push_back({0, again, {}});
        ++open_;
        channel_.call(again ? write_again : write_once,
                      {reinterpret_cast<const std::byte*>(&number), sizeof number},
                      {.timeout = 20s, .idempotent = again},
                      [this, number](const Status& status, ByteView) {
                          ++calls_[number].completions;
                          calls_[number].status = status;
                          answered_ += status.ok();
                          --open_;
                          next();
                      });
    }

    Runtime& runtime_;
    std::vector<Asked> calls_;
    const Channel channel_;
    std::uint64_t open_ = 0;
    std::uint64_t answered_ = 0;
    bool is_on_ = true;
};

struct Cycles {
    explicit Cycles(const std::string& uri)
        : journal(std::filesystem::temp_directory_path() /
                  ("weft-cycles-" + std::to_string(::getpid()))) {
        std::filesystem::remove(journal);
        server = std::make_unique<Server>(uri, journal);
        channel = client.connect(server->uri()).value();
        load = std::make_unique<Load>(client, channel);
    }
    ~Cycles() {
        server->kill();
        std::filesystem::remove(journal);
    }
    void run_for(Duration time) {
        client.turn_until([] { return false; }, time);
    }
    // Until it is answered again.
    void run_until_served() {
        const std::uint64_t before = load->answered();
        REQUIRE(client.turn_until([&] { return load->answered() > before + 64; }, patience));
    }
    Duration some(Duration most) {
        return Duration(
            static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(most.count())));
    }

    const std::uint64_t seed = seed_of(0);
    base::SeededRandom random{seed};
    const std::string journal;
    std::unique_ptr<Server> server;
    std::unique_ptr<Load> load;  // Outlives the runtime, which completes its calls.
    Runtime client = Runtime::create({.manual = true}).value();
    Channel channel;
};

std::vector<std::string> addresses() {
    return {"sm://cycles-" + std::to_string(::getpid()), "tcp://127.0.0.1:0"};
}

std::uint64_t cycles() { return setting("CYCLES", 20); }

}  // namespace

TEST_CASE("cycles: a server that is killed and restarted under load runs nothing twice",
          "[cycles]") {
    for (const std::string& uri : addresses()) {
        Cycles cycle(uri);
        INFO(uri << ", TEST_SEED=" << cycle.seed);
        cycle.load->start();
        for (std::uint64_t i = 0; i < cycles(); ++i) {
            cycle.run_for(cycle.some(100ms));
            cycle.server->kill();
            cycle.run_for(cycle.some(50ms));
            cycle.server->start();
            cycle.run_until_served();
        }
        REQUIRE(cycle.load->finish());
        cycle.load->judge(cycle.journal);
    }
}

TEST_CASE("cycles: a server that stands still and goes on under load runs nothing twice",
          "[cycles]") {
    for (const std::string& uri : addresses()) {
        Cycles cycle(uri);
        INFO(uri << ", TEST_SEED=" << cycle.seed);
        cycle.load->start();
        for (std::uint64_t i = 0; i < cycles(); ++i) {
            cycle.run_for(cycle.some(50ms));
            cycle.server->stop();
            // Mostly shorter than the silence that ends a connection.
            cycle.run_for(i % 10 == 9 ? 3500ms : cycle.some(300ms));
            cycle.server->go_on();
            cycle.run_until_served();
        }
        REQUIRE(cycle.load->finish());
        cycle.load->judge(cycle.journal);
    }
}
