// The share of a store that one client leaves to the others.
#include <weft/sim.h>

#include "storage/chunk_buffers.h"
#include "support/store_rig.h"

using namespace weft;
using test::pattern;
using test::StoreRig;

namespace {

// One client of a rig's store, over one connection.
struct OneClient {
    OneClient(StoreRig& of, Runtime& runtime)
        : rig(of), client(runtime, runtime.connect("sim://server").value()) {}
    Status open_extent(std::uint32_t length, std::uint32_t lease_ms = 1000) {
        storage::OpenExtentRequest open;
        open.set_extent(++extents);
        open.set_name("a");
        open.set_length(length);
        open.set_lease_ms(lease_ms);
        return rig.run(rig.call_one(client, storage::StoreMethods::OpenExtent, open)).status();
    }
    // Opens uploads, or downloads of "a", until one is refused; returns how many it opened.
    template <class Request, class Reply>
    std::size_t open_all(const ProtoMethod<Request, Reply>& method, Request request) {
        std::size_t opened = 0;
        // Shared with calls that complete at the end of their runtime.
        const auto refusal = std::make_shared<std::optional<Status>>();
        const std::optional<Status>& refused = *refusal;
        while (!refused && opened <= storage::transfers_max) {
            request.set_transfer(++transfers);
            weft::call(client.channel(), method, request, CallOptions{.timeout = no_timeout},
                       [refusal](const Status& status, const Reply&) { *refusal = status; });
            rig.rig.run_for(20us);
            ++opened;
        }
        REQUIRE(refused);
        CHECK(refused->code() == Code::resource_exhausted);
        return opened - 1;
    }

    StoreRig& rig;
    storage::Client client;
    std::uint64_t transfers = 0;
    static inline std::uint64_t extents = 0;  // Shared by all clients of a store.
};

}  // namespace

TEST_CASE("the memory of extents is bounded, and leases return it") {
    StoreRig rig;
    REQUIRE(rig.put("a", pattern(16u << 20)).ok());
    OneClient one(rig, *rig.client_runtime);
    OneClient two(rig, rig.rig.add("second"));
    OneClient three(rig, rig.rig.add("third"));
    REQUIRE(one.open_extent(16u << 20).ok());
    CHECK(one.open_extent(1).code() == Code::resource_exhausted);  // The client's share.
    REQUIRE(two.open_extent(16u << 20).ok());
    CHECK(three.open_extent(1).code() == Code::resource_exhausted);  // The store's limit.
    rig.rig.run_for(1100ms);
    CHECK(one.open_extent(16u << 20).ok());
}

TEST_CASE("extents are bounded in number, and one client has at most half of them") {
    StoreRig rig;
    REQUIRE(rig.put("a", pattern(10)).ok());
    OneClient one(rig, *rig.client_runtime);
    OneClient two(rig, rig.rig.add("second"));
    const auto open_all = [](OneClient& client) {
        std::size_t opened = 0;
        while (opened < 5000 && client.open_extent(1, 60'000).ok()) ++opened;
        return opened;
    };
    CHECK(open_all(one) == storage::extents_client_max);
    CHECK(open_all(two) == storage::extents_client_max);
    CHECK(node_of(*rig.server).bulk.regions->open_regions() == storage::extents_max);
}

TEST_CASE("a client has its share when another client of the same name has used up its own") {
    StoreRig rig;
    REQUIRE(rig.put("a", pattern(10)).ok());
    OneClient one(rig, rig.rig.add(""));
    OneClient two(rig, rig.rig.add(""));
    storage::PutRequest put;
    put.set_name("b");
    CHECK(one.open_all(storage::StoreMethods::Put, put) == storage::transfers_client_max);
    storage::GetRequest get;
    get.set_name("a");
    CHECK(one.open_all(storage::StoreMethods::Get, get) == storage::transfers_client_max);
    CHECK(one.open_extent(16u << 20).ok());
    const storage::Fd source = rig.source("whole");
    CHECK(rig.run(two.client.put(source.get(), "source", "c", {})).ok());
    storage::Sink sink = storage::Sink::file(rig.files.path + "/back").value();
    CHECK(rig.run(two.client.get("a", sink, {})).ok());
    CHECK(two.open_extent(10).ok());
}

namespace {

constexpr ClientId client_a{1}, client_b{2}, client_c{3}, client_d{4}, client_e{5};

struct Lender {
    Lender() {
        buffers.emplace(8, [this]() -> Result<Buffer> {
            if (made == made_max) return fail(Code::resource_exhausted, "no memory for more");
            ++made;
            return runtime.allocate(4096);
        });
    }
    // Serves all waiting clients, so that no coroutine is left.
    ~Lender() {
        for (bool is_any = true; is_any;) {
            is_any = false;
            for (auto& [client, loans] : lent) {
                for (; !loans.empty(); is_any = true) give_back(client);
            }
        }
    }
    void ask(ClientId client, int times = 1) {
        for (int i = 0; i < times; ++i) runtime.spawn(borrow(client));
        rig.run_until_idle();
    }
    Task<void> borrow(ClientId client) {
        Result<storage::ChunkBuffers::BufferLease> loan = co_await buffers->acquire(client);
        if (!loan) {
            refused.push_back(loan.status());
            co_return;
        }
        lent[client].push_back(*std::move(loan));
        order.push_back(client);
    }
    void give_back(ClientId client) {
        lent[client].pop_back();
        rig.run_until_idle();
    }

    std::optional<storage::ChunkBuffers> buffers;
    std::map<ClientId, std::vector<storage::ChunkBuffers::BufferLease>> lent;
    std::vector<ClientId> order;
    int made = 0, made_max = -1;
    std::vector<Status> refused;
    test::SimRig rig;
    Runtime& runtime = rig.add("server");
};

}  // namespace

TEST_CASE("chunk buffers: one client has at most half of what the others leave") {
    Lender lender;
    lender.ask(client_a, 100);
    CHECK(lender.lent[client_a].size() == 4);
    lender.ask(client_b, 100);
    CHECK(lender.lent[client_b].size() == 2);
    lender.ask(client_c, 100);
    lender.ask(client_d, 100);
    CHECK(lender.lent[client_c].size() == 1);
    CHECK(lender.lent[client_d].size() == 1);
    CHECK(lender.made == 8);
}

TEST_CASE("chunk buffers: clients that wait take turns, and each is served in its order") {
    Lender lender;
    for (const ClientId client : {client_a, client_b, client_c, client_d}) lender.ask(client, 4);
    REQUIRE(lender.order.size() == 8);
    lender.order.clear();
    lender.ask(client_e, 2);
    CHECK(lender.order.empty());
    for (int i = 0; i < 4; ++i) lender.give_back(client_a);
    CHECK(lender.order == std::vector{client_e, client_c, client_d});
}

TEST_CASE("chunk buffers: all waiters fail with the reason when no buffer exists or can be made") {
    Lender lender;
    lender.made_max = 0;
    lender.ask(client_a, 2);
    lender.ask(client_b);
    REQUIRE(lender.refused.size() == 3);
    for (const Status& why : lender.refused) CHECK(why.text() == "no memory for more");
    lender.made_max = 1;  // The next request can make a buffer.
    lender.ask(client_b, 2);
    CHECK(lender.refused.size() == 3);
    REQUIRE(lender.lent[client_b].size() == 1);
    lender.give_back(client_b);  // Passed to the waiting request.
    CHECK(lender.lent[client_b].size() == 1);
    lender.lent[client_b][0].discard();
    lender.made_max = 1;
    lender.ask(client_a);
    lender.give_back(client_b);
    REQUIRE(lender.refused.size() == 4);
}

TEST_CASE("chunk buffers: a buffer that a transfer may still access is not reused") {
    Lender lender;
    lender.ask(client_a);
    const Buffer touched = *lender.lent[client_a][0];
    lender.lent[client_a][0].discard();
    lender.give_back(client_a);
    lender.ask(client_b);
    CHECK(lender.lent[client_b][0]->data() != touched.data());
    CHECK(lender.made == 2);
}

namespace {

// A store with a client "slow" that moves 1 MB/s in one direction: a chunk takes seconds.
struct SlowNet {
    SlowNet(const std::string& from, const std::string& to) : network(1) {
        std::filesystem::create_directory(files.path + "/root");
        network.add("server", [this](Runtime& runtime) {
            std::shared_ptr<storage::Store> store =
                storage::Store::open(runtime, files.path + "/root").value();
            REQUIRE(runtime.serve(*store, "sim://server").ok());
            return store;
        });
        for (const char* name : {"slow", "honest"}) {
            network.add(name, [](Runtime&) { return nullptr; });
        }
        REQUIRE(put("honest", pattern(40u << 20), "a"));
        network.set_link(from, to, {.bytes_per_second = 1e6});
    }
    storage::Client client_of(const std::string& host) {
        Runtime& runtime = *network.runtime(host);
        return storage::Client(runtime, runtime.connect("sim://server").value());
    }
    using OneShotStatus = std::optional<Result<storage::TransferResult>>;
    Task<void> put_into(std::string host, std::string bytes, std::string name,
                        OneShotStatus& into) {
        const std::string path = files.path + "/" + host;
        std::ofstream(path, std::ios::binary) << bytes;
        const storage::Fd source(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        storage::Client client = client_of(host);
        into.emplace(co_await client.put(source.get(), "source", name, {}));
    }
    Task<void> get_into(std::string host, OneShotStatus& into) {
        storage::Sink sink = storage::Sink::file(files.path + "/got-" + host).value();
        storage::Client client = client_of(host);
        into.emplace(co_await client.get("a", sink, {}));
    }
    bool ends_soon(OneShotStatus& outcome) {
        return network.run_until([&] { return outcome.has_value(); }, 500ms) && outcome->ok();
    }
    bool put(const std::string& host, const std::string& bytes, const std::string& name) {
        OneShotStatus outcome;
        network.runtime(host)->spawn(put_into(host, bytes, name, outcome));
        return ends_soon(outcome);
    }
    bool get(const std::string& host) {
        OneShotStatus outcome;
        network.runtime(host)->spawn(get_into(host, outcome));
        return ends_soon(outcome);
    }

    test::TemporaryDirectory files;
    OneShotStatus stands_still;
    sim::Simulation network;
};

}  // namespace

TEST_CASE("a client with very slow uploads leaves chunk buffers to the others") {
    SlowNet net("slow", "server");
    net.network.runtime("slow")->spawn(
        net.put_into("slow", pattern(40u << 20), "b", net.stands_still));
    net.network.run_for(100ms);
    CHECK(net.put("honest", "one line", "c"));
    CHECK(net.get("honest"));
    CHECK_FALSE(net.stands_still);
}

TEST_CASE("a client with very slow downloads leaves chunk buffers to the others") {
    SlowNet net("server", "slow");
    net.network.runtime("slow")->spawn(net.get_into("slow", net.stands_still));
    net.network.run_for(100ms);
    CHECK(net.put("honest", "one line", "c"));
    CHECK(net.get("honest"));
    CHECK_FALSE(net.stands_still);
}
