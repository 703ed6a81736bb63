// Put and Get: sizes, integrity, atomicity, and the state after a crash.
#include <sys/xattr.h>

#include <weft/combine.h>

#include "support/gate.h"
#include "support/store_rig.h"

using namespace weft;
using Catch::Matchers::Contains;
using test::pattern;
using test::StoreRig;

namespace {

// A client's half of an upload, call by call, with requests that weft's client never sends.
struct ByHand {
    explicit ByHand(StoreRig& of) : rig(of), client(of.make_client()) {
        memory = rig.client_runtime->allocate(storage::chunk_bytes).value();
        region = rig.client_runtime->expose(memory, {.access = Access::read}).value();
    }
    void open(const std::string& name) {
        storage::PutRequest request;
        request.set_transfer(7);
        request.set_name(name);
        client.stub().Put(request, {.timeout = no_timeout},
                          [this](const Status& status, const storage::PutReply&) { end = status; });
    }
    Status chunk(const std::string& bytes, std::uint32_t crc, std::uint64_t offset = 0) {
        std::copy_n(as_bytes(bytes).data(), bytes.size(), memory.data());
        storage::PutChunkRequest request;
        request.set_transfer(7);
        request.set_offset(offset);
        request.set_length(static_cast<std::uint32_t>(bytes.size()));
        request.set_crc32c(crc);
        to_proto(region.ref(), request.mutable_data());
        return rig.call(storage::StoreMethods::PutChunk, request).status();
    }
    Status commit(std::uint64_t size, std::uint32_t crc) {
        storage::PutCommitRequest request;
        request.set_transfer(7);
        request.set_size(size);
        request.set_crc32c(crc);
        return rig.call(storage::StoreMethods::PutCommit, request).status();
    }
    bool ended() {
        return rig.rig.run_until([&] { return end.has_value(); }, 1s);
    }

    StoreRig& rig;
    storage::Client client;
    Buffer memory;
    Region region;
    std::optional<Status> end;
};

}  // namespace

TEST_CASE("an object of any size is read back as it was put, with its checksum") {
    const std::size_t chunk = storage::chunk_bytes;
    StoreRig rig;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, chunk - 1, chunk, chunk + 1,
                                   storage::window * chunk, storage::window * chunk + 1}) {
        const std::string bytes = pattern(size, static_cast<unsigned>(size));
        const Result<storage::TransferResult> put = rig.put("a", bytes);
        INFO(put.status().to_string());
        REQUIRE(put.ok());
        CHECK(put->size == size);
        CHECK(put->crc32c == storage::crc32c(0, as_bytes(bytes)));
        CHECK(test::read_text(rig.root + "/a") == bytes);
        const Result<std::string> back = rig.get("a");
        INFO(back.status().to_string());
        REQUIRE(back.ok());
        CHECK(*back == bytes);
    }
    CHECK(rig.unfinished() == 0);
}

TEST_CASE("crc32c is that of RFC 3720 and is continued piece by piece") {
    CHECK(storage::crc32c(0, {}) == 0);
    CHECK(storage::crc32c(0, as_bytes("123456789")) == 0xe3069283);
    CHECK(storage::crc32c(0, as_bytes(std::string(32, '\0'))) == 0x8a9136aa);
    const std::string bytes = pattern(10'000);
    const std::string_view view = bytes;
    CHECK(storage::crc32c(storage::crc32c(0, as_bytes(view.substr(0, 777))),
                          as_bytes(view.substr(777))) == storage::crc32c(0, as_bytes(view)));
}

TEST_CASE("a chunk that arrives damaged ends the upload with DATA_LOSS and leaves nothing") {
    StoreRig rig;
    REQUIRE(rig.put("a", "before").ok());
    ByHand upload(rig);
    upload.open("a");
    const std::string bytes = pattern(1000);
    const Status status = upload.chunk(bytes, storage::crc32c(0, as_bytes(bytes)) ^ 1);
    CHECK(status.code() == Code::data_loss);
    CHECK_THAT(std::string(status.text()),
               Contains("'a' arrived damaged between bytes 0 and 1000"));
    REQUIRE(upload.ended());
    CHECK(upload.end->code() == Code::data_loss);
    CHECK(test::read_text(rig.root + "/a") == "before");
    CHECK(rig.unfinished() == 0);
}

TEST_CASE("a commit is DATA_LOSS when its size or checksum differs from the received bytes") {
    StoreRig rig;
    ByHand upload(rig);
    upload.open("a");
    REQUIRE(upload.chunk("hello", storage::crc32c(0, as_bytes("hello"))).ok());
    CHECK(upload.commit(6, storage::crc32c(0, as_bytes("hello"))).code() == Code::data_loss);
    REQUIRE(upload.ended());
    CHECK(upload.commit(5, 0).code() == Code::aborted);
    CHECK(!std::filesystem::exists(rig.root + "/a"));
}

TEST_CASE("chunks with gaps, without bytes or of no upload are refused without effect") {
    StoreRig rig;
    ByHand upload(rig);
    CHECK(upload.chunk("x", 0).code() == Code::aborted);
    upload.open("a");
    CHECK(upload.chunk("x", 0, 5).code() == Code::invalid_argument);
    CHECK(upload.chunk("", 0).code() == Code::invalid_argument);
    const std::uint32_t crc = storage::crc32c(0, as_bytes("hello"));
    REQUIRE(upload.chunk("hello", crc).ok());
    REQUIRE(upload.commit(5, crc).ok());
    REQUIRE(upload.ended());
    CHECK(upload.end->ok());
    CHECK(test::read_text(rig.root + "/a") == "hello");
}

TEST_CASE("a get of an object that changed on the server's disk is DATA_LOSS") {
    StoreRig rig;
    REQUIRE(rig.put("a", pattern(100'000)).ok());
    {
        std::fstream file(rig.root + "/a", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(50'000);
        file.put('\0').put('\1');
    }
    char ignored[16];
    if (::getxattr((rig.root + "/a").c_str(), "user.weft.crc32c", ignored, 16) < 0) return;
    const Status status = rig.get("a").status();
    CHECK(status.code() == Code::data_loss);
    CHECK_THAT(std::string(status.text()), Contains("damaged on the server's disk"));
    CHECK(!std::filesystem::exists(rig.files.path + "/back"));
}

TEST_CASE("a client that dies in an upload leaves neither an object nor an unfinished one") {
    StoreRig rig;
    storage::Client client = rig.make_client();
    const storage::Fd fd = rig.source(pattern(40u << 20));
    std::optional<Result<storage::TransferResult>> result;
    rig.client_runtime->spawn(StoreRig::keep(client.put(fd.get(), "source", "dir/a", {}), result));
    REQUIRE(rig.rig.run_until([&] { return rig.unfinished() == 1; }));
    rig.rig.kill("client");
    REQUIRE(rig.rig.run_until([&] { return rig.unfinished() == 0; }, 10s));
    CHECK(!std::filesystem::exists(rig.root + "/dir/a"));
    rig.rig.runtimes.clear();  // Ends the operations of the dead client.
}

TEST_CASE("an upload is UNAVAILABLE and stores nothing when the server dies") {
    StoreRig rig;
    storage::Client client = rig.make_client();
    const storage::Fd fd = rig.source(pattern(40u << 20));
    std::optional<Result<storage::TransferResult>> result;
    rig.client_runtime->spawn(StoreRig::keep(client.put(fd.get(), "source", "a", {}), result));
    REQUIRE(rig.rig.run_until([&] { return rig.unfinished() == 1; }));
    rig.rig.kill("server");
    REQUIRE(rig.rig.run_until([&] { return result.has_value(); }, 10s));
    CHECK(result->status().code() == Code::unavailable);
    CHECK(result->status().effect() == Effect::none);
    CHECK(!std::filesystem::exists(rig.root + "/a"));
}

TEST_CASE("of two uploads to one name the last to commit wins whole") {
    StoreRig rig;
    Runtime& other = rig.rig.add("other");
    storage::Client one = rig.make_client();
    storage::Client two = rig.make_client(other);
    const std::string first = pattern(1u << 20, 1);
    const std::string second = pattern(13u << 20, 2);
    const storage::Fd one_fd = rig.source(first);
    const storage::Fd two_fd = rig.source(second);
    std::optional<Result<storage::TransferResult>> one_result, two_result;
    rig.client_runtime->spawn(StoreRig::keep(one.put(one_fd.get(), "one", "a", {}), one_result));
    other.spawn(StoreRig::keep(two.put(two_fd.get(), "two", "a", {}), two_result));
    std::string winner;
    REQUIRE(rig.rig.run_until([&] {
        if (one_result && two_result) return true;
        if (one_result && winner.empty()) winner = test::read_text(rig.root + "/a");
        return false;
    }));
    REQUIRE(one_result->ok());
    REQUIRE(two_result->ok());
    CHECK(winner == first);
    CHECK(rig.get("a").value() == second);
    CHECK(rig.unfinished() == 0);
}

TEST_CASE("a download gives one version, also when the object is replaced meanwhile") {
    StoreRig rig;
    const std::string before = pattern(48u << 20, 1);
    REQUIRE(rig.put("a", before).ok());
    storage::Client client = rig.make_client();
    const std::string path = rig.files.path + "/version";
    storage::Sink sink = storage::Sink::file(path).value();
    std::optional<Result<storage::TransferResult>> result;
    std::uint64_t landed = 0;
    rig.client_runtime->spawn(StoreRig::keep(
        client.get("a", sink, [&](std::uint64_t bytes) { landed = bytes; }), result));
    REQUIRE(rig.rig.run_until([&] { return landed > 0; }));
    REQUIRE(!result.has_value());
    std::ofstream(rig.root + "/new") << "other";
    std::filesystem::rename(rig.root + "/new", rig.root + "/a");
    REQUIRE(rig.rig.run_until([&] { return result.has_value(); }));
    INFO(result->status().to_string());
    REQUIRE(result->ok());
    CHECK(test::read_text(path) == before);
}

TEST_CASE("more clients than buffers wait for each other, and all uploads succeed") {
    StoreRig rig;
    struct One {
        Runtime* runtime;
        storage::Client client;
        storage::Fd fd;
        std::optional<Result<storage::TransferResult>> result;
    };
    std::vector<std::unique_ptr<One>> all;
    for (int i = 0; i < 6; ++i) {
        Runtime& runtime = rig.rig.add("c" + std::to_string(i));
        all.push_back(std::make_unique<One>(
            One{&runtime, rig.make_client(runtime), rig.source(pattern(9u << 20, i)), {}}));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        One& one = *all[i];
        one.runtime->spawn(StoreRig::keep(
            one.client.put(one.fd.get(), "source", "o" + std::to_string(i), {}), one.result));
    }
    REQUIRE(rig.rig.run_until([&] {
        return std::all_of(all.begin(), all.end(), [](auto& one) { return one->result; });
    }));
    for (std::size_t i = 0; i < all.size(); ++i) {
        REQUIRE(all[i]->result->ok());
        CHECK(test::read_text(rig.root + "/o" + std::to_string(i)) ==
              pattern(9u << 20, static_cast<unsigned>(i)));
    }
}

TEST_CASE("a client's transfer shares its memory with no other, also after a dropped one") {
    StoreRig rig;
    const std::string a = pattern(9u << 20), b = std::string(9u << 20, 'b');
    REQUIRE(rig.put("a", a).ok());
    REQUIRE(rig.put("b", b).ok());
    storage::Client client = rig.make_client();
    const auto get = [&](std::string name, std::string& into) -> Task<Status> {
        const std::string path = rig.files.path + "/of-" + name;
        storage::Sink sink = storage::Sink::file(path).value();
        const Result<storage::TransferResult> moved = co_await client.get(name, sink, {});
        if (!moved) co_return moved.status();
        into = test::read_text(path);
        co_return Status();
    };
    std::string first, second;
    SECTION("beside another one") {
        const auto both = [&]() -> Task<Status> {
            auto got = co_await when_all(get("a", first), get("b", second));
            if (!got.get<0>().ok()) co_return got.get<0>();
            co_return got.get<1>();
        };
        const Status status = rig.run(both());
        CHECK(status.to_string() == "OK");
        CHECK((first == a));
    }
    SECTION("after one that was dropped at any point") {
        const auto drop = [](test::Gate& gate) -> Task<Status> {
            co_await gate;
            co_return fail(Code::cancelled, "dropped");
        };
        int turns = 0;
        for (Code ended = Code::cancelled; ended == Code::cancelled; turns += 1 + turns / 4) {
            CAPTURE(turns);
            test::Gate gate;
            ended = Code::unknown;
            const auto race = [&]() -> Task<void> {
                auto one = co_await when_any(get("a", first), drop(gate));
                ended = one.value().code();
            };
            rig.client_runtime->spawn(race());
            int left = turns;
            rig.rig.run_until([&] { return left-- == 0 || ended == Code::ok; });
            rig.client_runtime->executor().post([&] {
                if (ended == Code::unknown && gate.waiting) gate.release();
            });
            REQUIRE(rig.rig.run_until([&] { return ended != Code::unknown; }));
            const Status status = rig.run(get("b", second));
            REQUIRE(status.to_string() == "OK");
        }
        CHECK(turns > 30);
    }
    CHECK((second == b));  // Too large to print.
}

TEST_CASE("a client with memory for one chunk moves whole objects") {
    StoreRig rig;
    const std::string bytes = pattern(10u << 20);
    storage::Client client(*rig.client_runtime, rig.client_runtime->connect("sim://server").value(),
                           1);
    const storage::Fd source = rig.source(bytes);
    REQUIRE(rig.run(client.put(source.get(), "source", "a", {})));
    const std::string path = rig.files.path + "/one";
    storage::Sink sink = storage::Sink::file(path).value();
    REQUIRE(rig.run(client.get("a", sink, {})));
    CHECK((test::read_text(path) == bytes));
}
