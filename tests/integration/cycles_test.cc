// A server is killed and restarted, or stopped and continued, again and again under load: every
// call completes once, its effect agrees with the server's journal, and nothing ran twice.
#include <fcntl.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "api/runtime_impl.h"
#include "support/cycles.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId write_once("test.Journal/Write");
constexpr MethodId write_again("test.Journal/WriteAgain");  // Called as idempotent.

// Writes each call's number to a file before the reply.
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

// Keeps 64 calls in flight.
class Load {
  public:
    Load(Runtime& runtime, std::vector<Channel> channels)
        : runtime_(runtime), channels_(std::move(channels)) {}

    void start() {
        for (int i = 0; i < 64; ++i) next();
    }
    bool finish() {
        is_on_ = false;
        return runtime_.turn_until([this] { return open_ == 0; }, test_timeout);
    }
    std::uint64_t answered() const { return answered_; }

    // Compares the outcomes with the journal.
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
        CHECK(node_of(runtime_).client.is_balanced());
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
        channels_[number % channels_.size()].call(
            again ? write_again : write_once,
            {reinterpret_cast<const std::byte*>(&number), sizeof number},
            {.timeout = 20s, .idempotent = again}, [this, number](const Status& status, ByteView) {
                ++calls_[number].completions;
                calls_[number].status = status;
                answered_ += status.ok();
                --open_;
                next();
            });
    }

    Runtime& runtime_;
    std::vector<Asked> calls_;
    const std::vector<Channel> channels_;
    std::uint64_t open_ = 0;
    std::uint64_t answered_ = 0;
    bool is_on_ = true;
};

// The load outlives the runtime, which completes its calls.
void run_cycles(void (Cycles::*trouble)(const Cycles::Progress&)) {
    const std::string path =
        std::filesystem::temp_directory_path() / ("weft-cycles-" + std::to_string(::getpid()));
    for (const std::string& uri : Cycles::addresses()) {
        std::filesystem::remove(path);
        std::unique_ptr<Load> load;
        Cycles cycles(uri, [&](Runtime&) { return std::make_unique<Journal>(path); });
        INFO(uri << ", TEST_SEED=" << cycles.seed);
        load = std::make_unique<Load>(cycles.client, cycles.channels);
        load->start();
        (cycles.*trouble)([&] { return load->answered(); });
        REQUIRE(load->finish());
        load->judge(path);
    }
    std::filesystem::remove(path);
}

}  // namespace

TEST_CASE("cycles: a server that is killed and restarted under load runs nothing twice",
          "[cycles]") {
    run_cycles(&Cycles::kill_often);
}

TEST_CASE("cycles: a server that is stopped and continued under load runs nothing twice",
          "[cycles]") {
    run_cycles(&Cycles::stop_often);
}
