// A store that is killed, or stopped, again and again: its journal has nothing twice and a line for
// each reported success, and its directory agrees with the journal.
#include <fcntl.h>
#include <sys/mman.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "storage/client.h"
#include "storage/service.h"
#include "support/cycles.h"
#include "support/store_rig.h"

using namespace weft;
using namespace weft::test;

namespace {

namespace fs = std::filesystem;

constexpr int workers = 6;

// Puts objects and deletes half of them, each under a name of its own.
class Load {
  public:
    Load(Runtime& runtime, std::vector<Channel> channels)
        : runtime_(runtime), channels_(std::move(channels)) {}

    void start() {
        for (int worker = 0; worker < workers; ++worker) {
            ++open_;
            runtime_.spawn(work(worker));
        }
    }
    bool finish() {
        is_on_ = false;
        return runtime_.turn_until([this] { return open_ == 0; }, test_timeout);
    }
    std::uint64_t answered() const { return answered_; }

    void judge(const std::string& journal, const std::string& root) const {
        std::map<std::string, int> puts, deletes;
        std::map<std::string, int> transfers;
        std::ifstream file(journal);
        for (std::string word; file >> word;) {
            std::string name, transfer, bytes, crc;
            if (word == "put") {
                file >> transfer >> bytes >> crc >> name;
                ++transfers[transfer];
                ++puts[name];
            } else {
                REQUIRE(word == "delete");
                file >> name;
                ++deletes[name];
            }
        }
        std::uint64_t twice = 0, lies = 0, wrong = 0, whole = 0;
        for (const auto* counts : {&puts, &deletes, &transfers}) {
            for (const auto& [name, times] : *counts) twice += times > 1;
        }
        for (const Object& object : objects_) {
            const bool is_put = puts.contains(object.name);
            const bool is_deleted = deletes.contains(object.name);
            lies += is_lie(object.put, is_put) +
                    (object.is_deleted && is_lie(object.removed, is_deleted));
            const std::string path = root + "/" + object.name;
            const bool is_there = fs::exists(path);
            // A line may be there without its effect, never the other way round.
            wrong += is_there && !is_put;
            wrong += object.put.ok() && !is_deleted && !is_there;
            wrong += object.is_deleted && object.removed.ok() && is_there;
            if (!is_there) continue;
            const std::string bytes = read_text(path);
            wrong += bytes != pattern(object.bytes, object.seed);
            ++whole;
        }
        INFO(objects_.size() << " objects, " << answered_ << " answers, " << puts.size()
                             << " puts and " << deletes.size() << " deletes in the journal, "
                             << whole << " there");
        CHECK(twice == 0);
        CHECK(lies == 0);
        CHECK(wrong == 0);
        CHECK(whole > 0);
        CHECK(deletes.size() > 0);
    }

  private:
    struct Object {
        std::string name;
        std::size_t bytes;
        unsigned seed;
        Status put;
        bool is_deleted = false;  // A delete was tried.
        Status removed;
    };

    static bool is_lie(const Status& status, bool is_in_journal) {
        if (status.ok()) return !is_in_journal;
        return (status.effect() == Effect::applied && !is_in_journal) ||
               (status.effect() == Effect::none && is_in_journal);
    }

    Task<void> work(int worker) {
        storage::Client client(runtime_,
                               channels_[static_cast<std::size_t>(worker) % channels_.size()], 1);
        while (is_on_) {
            const auto index = objects_.size();
            const auto seed = static_cast<unsigned>(index + 1);
            objects_.push_back({"w" + std::to_string(worker) + "-" + std::to_string(index),
                                1 + (index * 7919) % 20'000,
                                seed,
                                {},
                                false,
                                {}});
            co_await put(client, index);
            if (index % 2 == 0 && objects_[index].put.ok()) co_await remove(client, index);
        }
        --open_;
    }
    Task<void> put(storage::Client& client, std::size_t index) {
        const Object object = objects_[index];
        const storage::Fd source(::memfd_create("source", MFD_CLOEXEC));
        const std::string bytes = pattern(object.bytes, object.seed);
        REQUIRE(::pwrite(source.get(), bytes.data(), bytes.size(), 0) ==
                static_cast<ssize_t>(bytes.size()));
        const Result<storage::TransferResult> moved =
            co_await client.put(source.get(), "source", object.name, {});
        objects_[index].put = moved.status();
        answered_ += moved.ok();
    }
    Task<void> remove(storage::Client& client, std::size_t index) {
        storage::DeleteRequest request;
        request.set_name(objects_[index].name);
        objects_[index].is_deleted = true;
        objects_[index].removed = (co_await client.stub().Delete(request)).status();
        answered_ += objects_[index].removed.ok();
    }

    Runtime& runtime_;
    const std::vector<Channel> channels_;
    std::vector<Object> objects_;
    std::uint64_t answered_ = 0;
    int open_ = 0;
    bool is_on_ = true;
};

void run_cycles(void (Cycles::*trouble)(const Cycles::Progress&)) {
    for (const std::string& uri : Cycles::addresses()) {
        const TemporaryDirectory files;
        const std::string root = files.path + "/root", journal = files.path + "/journal";
        fs::create_directory(root);
        std::unique_ptr<Load> load;
        std::shared_ptr<storage::SharedStore> shared;  // In the process of the server.
        Cycles cycles(uri, [&](Runtime& runtime) -> std::unique_ptr<Service> {
            if (!shared) {
                auto opened = storage::SharedStore::open(root, journal);
                if (!opened) return nullptr;
                shared = *std::move(opened);
            }
            return std::make_unique<storage::Store>(runtime, shared);
        });
        INFO(uri << ", TEST_SEED=" << cycles.seed);
        load = std::make_unique<Load>(cycles.client, cycles.channels);
        load->start();
        (cycles.*trouble)([&] { return load->answered(); });
        REQUIRE(load->finish());
        load->judge(journal, root);
        cycles.server.kill();
        CHECK(storage::Root::open(root).ok());
        for (const auto& entry : fs::directory_iterator(root)) {
            CHECK_FALSE(entry.path().filename().string().ends_with(".weft-tmp"));
        }
    }
}

}  // namespace

TEST_CASE("cycles: a store that is killed and restarted does nothing twice", "[cycles]") {
    run_cycles(&Cycles::kill_often);
}

TEST_CASE("cycles: a store that is stopped and continued does nothing twice", "[cycles]") {
    run_cycles(&Cycles::stop_often);
}
