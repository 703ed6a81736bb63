// The storage service on hosts that crash: stored objects are whole afterwards. The files outlive
// the simulated host as they outlive a process; the effect of fsync is not tested here.
#include <sys/mman.h>

#include <map>

#include <weft/sim.h>

#include "support/seed.h"
#include "support/store_rig.h"

using namespace weft;
using test::pattern;

namespace {

// An object that one client puts again and again.
struct Object {
    std::string name;
    std::string client;
    // Possible contents: the bytes stored last ("": none), and bytes that may be stored now or
    // later.
    std::string known{};
    std::vector<std::string> doubtful{};
    bool is_busy = false;
    int puts = 0;
    int stored = 0;
};

storage::Fd memory_file(const std::string& bytes) {
    storage::Fd file(::memfd_create("source", MFD_CLOEXEC));
    REQUIRE(::pwrite(file.get(), bytes.data(), bytes.size(), 0) ==
            static_cast<ssize_t>(bytes.size()));
    return file;
}

class Cluster {
  public:
    explicit Cluster(std::uint64_t seed) : simulation_(seed, {.checks_access = seed % 2 == 0}) {
        std::filesystem::create_directory(root);
        simulation_.add("server", [this](Runtime& runtime) {
            std::shared_ptr<storage::Store> store = storage::Store::open(runtime, root).value();
            REQUIRE(runtime.serve(*store, "sim://server").ok());
            return store;
        });
        for (const char* name : {"a", "b", "c"}) {
            simulation_.add(name, [](Runtime& runtime) {
                return std::make_shared<Channel>(runtime.connect("sim://server").value());
            });
            for (int i = 0; i < 2; ++i) {
                objects.push_back({name + std::to_string(i), name});
            }
        }
    }

    void trouble() {
        for (Object& object : objects) {
            for (int i = 0; i < 8; ++i) simulation_.in(any_moment(), [&] { put(object); });
        }
        for (int i = 0; i < 4; ++i) simulation_.in(any_moment(), [this] { stop_server(); });
        for (int i = 0; i < 2; ++i) {
            simulation_.in(any_moment(), [this] { stop("abc"[simulation_.random() % 3]); });
        }
        sim::Link bad;
        bad.loss = 0.05;
        bad.reorder = 0.1;
        bad.damage = 0.0005;
        simulation_.set_links(bad);
        simulation_.run_for(length);
        simulation_.heal();
        for (const char* name : {"server", "a", "b", "c"}) simulation_.start(name);
        simulation_.run_for(5s);
        for (const Object& object : objects) REQUIRE_FALSE(object.is_busy);
    }

    // Returns "" when there is no such object.
    std::string get(const Object& object) {
        std::optional<Result<storage::TransferResult>> moved;
        const std::string path = files.path + "/back";
        storage::Sink sink = storage::Sink::file(path).value();
        runtime(object)->spawn(get_into(object.client, object.name, sink, moved));
        REQUIRE(simulation_.run_until([&] { return moved.has_value(); }, 60s));
        if (!moved->ok() && moved->status().code() == Code::not_found) return "";
        INFO(moved->status().to_string());
        REQUIRE(moved->ok());
        return test::read_text(path);
    }

    test::TemporaryDirectory files;
    const std::string root = files.path + "/root";
    std::vector<Object> objects;

  private:
    static constexpr Duration length = 1500ms;

    Duration any_moment() {
        return Duration(static_cast<std::int64_t>(simulation_.random() %
                                                  static_cast<std::uint64_t>(length.count())));
    }
    Runtime* runtime(const Object& object) { return simulation_.runtime(object.client); }

    void stop_server() {
        const std::uint64_t kind = simulation_.random() % 3;
        const Duration time = any_moment() / 4;
        if (kind == 0) simulation_.kill("server");
        if (kind == 1) simulation_.crash("server");
        if (kind == 2) simulation_.pause("server");
        simulation_.in(time, [this] {
            simulation_.resume("server");
            simulation_.start("server");
        });
    }
    void stop(char client) {
        simulation_.kill({client});
        simulation_.in(any_moment() / 4, [this, client] { simulation_.start({client}); });
    }

    void put(Object& object) {
        if (object.is_busy || !simulation_.is_up(object.client)) return;
        object.is_busy = true;
        ++object.puts;
        const std::size_t bytes =
            1 + simulation_.random() % (std::size_t{1} << simulation_.random() % 18);
        runtime(object)->spawn(
            put_into(object, pattern(bytes, static_cast<unsigned>(simulation_.random()))));
    }

    storage::Client client_of(const std::string& name) {
        Runtime& runtime = *simulation_.runtime(name);
        return storage::Client(runtime, runtime.connect("sim://server").value(), 2);
    }

    Task<void> put_into(Object& object, std::string bytes) {
        const storage::Fd source = memory_file(bytes);
        storage::Client client = client_of(object.client);
        const Result<storage::TransferResult> moved =
            co_await client.put(source.get(), "source", object.name, {});
        if (moved) {
            object.known = bytes;
            ++object.stored;
        } else if (moved.status().effect() != Effect::none) {
            object.doubtful.push_back(bytes);
        }
        object.is_busy = false;
    }
    Task<void> get_into(const std::string& client_name, std::string name, storage::Sink& sink,
                        std::optional<Result<storage::TransferResult>>& into) {
        storage::Client client = client_of(client_name);
        into.emplace(co_await client.get(name, sink, {}));
        if (*into) (void)sink.finish();
    }

    sim::Simulation simulation_;
};

}  // namespace

TEST_CASE("simulation: stored objects are whole after the process of the store died") {
    const std::uint64_t first = test::seed_of(1);
    int stored = 0, failed = 0;
    for (std::uint64_t seed = first; seed < first + 20; ++seed) {
        CAPTURE(seed);
        Cluster cluster(seed);
        cluster.trouble();
        for (const Object& object : cluster.objects) {
            CAPTURE(object.name, object.puts, object.stored);
            const std::string now = cluster.get(object);
            CAPTURE(now.size());
            const bool is_doubtful = std::find(object.doubtful.begin(), object.doubtful.end(),
                                               now) != object.doubtful.end();
            CHECK((now == object.known || is_doubtful));
            stored += object.stored;
            failed += object.puts - object.stored;
        }
        for (const auto& entry : std::filesystem::recursive_directory_iterator(cluster.root)) {
            CHECK_FALSE(entry.path().filename().string().ends_with(".weft-tmp"));
        }
    }
    // Both outcomes occur, otherwise nothing was tried.
    CHECK(stored > 100);
    CHECK(failed > 50);
}
