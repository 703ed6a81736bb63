// Names, listing, extents, settings, and faulty roots.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <csignal>
#include <fstream>

#include <weft/await.h>

#include "storage/name.h"
#include "support/capability.h"
#include "support/store_rig.h"

using namespace weft;
using Catch::Matchers::Contains;
using test::pattern;
using test::StoreRig;
namespace fs = std::filesystem;

namespace {

Result<storage::Entry> stat(StoreRig& rig, const std::string& name) {
    storage::StatRequest request;
    request.set_name(name);
    return rig.call(storage::StoreMethods::Stat, request);
}

std::vector<std::string> list(StoreRig& rig, const std::string& prefix = "") {
    std::vector<std::string> names;
    storage::ListRequest request;
    request.set_prefix(prefix);
    while (true) {
        const storage::ListReply page = rig.call(storage::StoreMethods::List, request).value();
        for (const storage::Entry& entry : page.entries()) names.push_back(entry.name());
        if (!page.more()) return names;
        request.set_after(names.back());
    }
}

Status remove_object(StoreRig& rig, const std::string& name) {
    storage::DeleteRequest request;
    request.set_name(name);
    return rig.call(storage::StoreMethods::Delete, request).status();
}

Task<Status> read_ref(Channel channel, RegionRef ref, Buffer local) {
    co_return co_await weft::get(channel, ref, 0, local);
}

std::string why_not(std::string_view name) {
    return std::string(storage::validate_name(name).text());
}

}  // namespace

TEST_CASE("a name that leads out of the root or that no file can have is refused with its fault") {
    CHECK(storage::validate_name("a").ok());
    CHECK(storage::validate_name("a/b.c/d e/ü").ok());
    CHECK(storage::validate_name("...").ok());
    CHECK(storage::validate_name(std::string(200, 'x')).ok());
    CHECK_THAT(why_not(""), Contains("is empty"));
    CHECK_THAT(why_not("/etc/passwd"), Contains("starts with '/'"));
    CHECK_THAT(why_not("../a"), Contains("'..'"));
    CHECK_THAT(why_not("a/../../b"), Contains("'..'"));
    CHECK_THAT(why_not("a/./b"), Contains("'.'"));
    CHECK_THAT(why_not("a//b"), Contains("empty part"));
    CHECK_THAT(why_not("a/"), Contains("empty part"));
    CHECK_THAT(why_not(std::string_view("a\0b", 3)), Contains("zero byte"));
    CHECK_THAT(why_not("\xff"), Contains("UTF-8"));
    CHECK_THAT(why_not("\xed\xa0\x80"), Contains("UTF-8"));
    CHECK_THAT(why_not("\xc0\xaf"), Contains("UTF-8"));
    CHECK_THAT(why_not(std::string(201, 'x')), Contains("200 bytes"));
    CHECK_THAT(why_not(std::string(1025, 'x')), Contains("1024 bytes"));
    std::string deep = "x";
    for (int i = 0; i < 32; ++i) deep += "/x";
    CHECK_THAT(why_not(deep), Contains("32 parts"));
    CHECK_THAT(why_not(".a.0123456789abcdef.weft-tmp"), Contains("unfinished"));
    CHECK(storage::quote("a\n\xff").find_first_of("\n\xff") == std::string::npos);
}

TEST_CASE("no name and no link leads out of the root") {
    StoreRig rig;
    fs::create_directory(rig.files.path + "/outside");
    std::ofstream(rig.files.path + "/outside/secret") << "secret";
    fs::create_directory_symlink(rig.files.path + "/outside", rig.root + "/absolute");
    fs::create_directory_symlink("../outside", rig.root + "/relative");
    fs::create_symlink("../outside/secret", rig.root + "/file");
    for (const std::string name : {"absolute/secret", "relative/secret", "file"}) {
        INFO(name);
        const Status got = rig.get(name).status();
        CHECK(got.code() == Code::permission_denied);
        CHECK(got.effect() != Effect::unknown);
        CHECK_THAT(std::string(got.text()), Contains("leads out of the server's root"));
        CHECK(stat(rig, name).status().code() == Code::permission_denied);
    }
    for (const std::string name : {"absolute/new", "relative/deep/new"}) {
        CHECK(rig.put(name, "x").status().code() == Code::permission_denied);
        CHECK(remove_object(rig, name).code() == Code::permission_denied);
    }
    CHECK(rig.put("../x", "x").status().code() == Code::invalid_argument);
    // A put onto a link replaces the link.
    REQUIRE(rig.put("file", "mine").ok());
    CHECK(test::read_text(rig.files.path + "/outside/secret") == "secret");
    CHECK(rig.get("file").value() == "mine");
    CHECK(std::distance(fs::directory_iterator(rig.files.path + "/outside"), {}) == 1);
}

TEST_CASE("a missing object is NOT_FOUND, and a directory or fifo is FAILED_PRECONDITION") {
    StoreRig rig;
    for (const Status& status :
         {rig.get("a").status(), stat(rig, "a").status(), remove_object(rig, "a"),
          stat(rig, "no/such/directory").status(), remove_object(rig, "no/such/directory")}) {
        INFO(status.to_string());
        CHECK(status.code() == Code::not_found);
        CHECK(status.effect() == Effect::none);
        CHECK_THAT(std::string(status.text()), Contains("no object has the name"));
    }
    REQUIRE(rig.put("dir/a", "x").ok());
    CHECK(rig.put("dir", "x").status().code() == Code::failed_precondition);
    CHECK(rig.get("dir").status().code() == Code::failed_precondition);
    CHECK(rig.put("dir/a/b", "x").status().code() == Code::failed_precondition);
    REQUIRE(::mkfifo((rig.root + "/fifo").c_str(), 0600) == 0);
    CHECK(rig.get("fifo").status().code() == Code::failed_precondition);
    CHECK(rig.get("dir/a").value() == "x");
}

TEST_CASE("stat returns size, time and checksum, and delete removes the object") {
    StoreRig rig;
    REQUIRE(rig.put("a", "123456789").ok());
    const storage::Entry entry = stat(rig, "a").value();
    CHECK(entry.size() == 9);
    CHECK(entry.mtime_ns() > 1'600'000'000'000'000'000);
    if (entry.has_crc32c()) CHECK(entry.crc32c() == 0xe3069283);
    CHECK(remove_object(rig, "a").ok());
    CHECK(stat(rig, "a").status().code() == Code::not_found);
}

TEST_CASE("a directory is removed with its last object, and its name is free") {
    StoreRig rig;
    fs::create_directories(rig.root + "/kept/by/hand");
    REQUIRE(rig.put("a/b/one", "1").ok());
    REQUIRE(rig.put("a/two", "2").ok());
    CHECK(remove_object(rig, "a/b/one").ok());
    CHECK_FALSE(fs::exists(rig.root + "/a/b"));
    CHECK(rig.put("a/b", "an object now").ok());
    CHECK(remove_object(rig, "a/b").ok());
    CHECK(remove_object(rig, "a/two").ok());
    CHECK(rig.put("a", "and one here").ok());
    CHECK(fs::exists(rig.root + "/kept/by/hand"));
}

TEST_CASE("an upload that fails leaves no directory") {
    Status whole;
    bool ended = false;
    StoreRig rig;
    Channel channel = rig.client_runtime->connect("sim://server").value();
    storage::PutRequest put;
    put.set_name("deep/below/a");
    put.set_transfer(7);
    storage::StoreClient(channel).Put(put, {.timeout = 10ms},
                                      [&](const Status& status, const storage::PutReply&) {
                                          whole = status;
                                          ended = true;
                                      });
    REQUIRE(rig.rig.run_until([&] { return ended; }));
    rig.rig.run_for(1s);
    CHECK_FALSE(whole.ok());
    CHECK(fs::is_empty(rig.root));
}

TEST_CASE("concurrent puts and removals in one directory do not fail") {
    test::TemporaryDirectory files;
    const storage::Root root = storage::Root::open(files.path).value();
    struct Remover {
        const storage::Root& root;
        std::atomic<bool> stop{false};
        std::thread thread{[this] {
            while (!stop) (void)root.remove("a/b/x");
        }};
        ~Remover() {
            stop = true;
            thread.join();
        }
    } remover{root};
    for (int i = 0; i < 500; ++i) {
        Result<storage::UnfinishedFile> file = root.create("a/b/x");
        INFO(file.status().to_string());
        REQUIRE(file.ok());
        REQUIRE(file->append(as_bytes("x")).ok());
        REQUIRE(file->commit(0).ok());
    }
}

TEST_CASE("a chunk call without a deadline is refused") {
    Status outcome, whole;  // Outlive the runtime that completes into them.
    bool done = false;
    StoreRig rig;
    Channel channel = rig.client_runtime->connect("sim://server").value();
    const Buffer memory = rig.client_runtime->allocate(4096).value();
    const Region region =
        rig.client_runtime->expose(memory, {.access = Access::read_write}).value();
    storage::PutRequest put;
    put.set_name("a");
    put.set_transfer(7);
    storage::PutChunkRequest chunk;
    chunk.set_transfer(7);
    chunk.set_length(10);
    to_proto(region.ref(), chunk.mutable_data());
    storage::StoreClient stub(channel);
    stub.Put(put, {.timeout = no_timeout},
             [&](const Status& status, const storage::PutReply&) { whole = status; });
    rig.rig.run_for(1ms);
    stub.PutChunk(chunk, {.timeout = no_timeout},
                  [&](const Status& status, const storage::PutChunkReply&) {
                      outcome = status;
                      done = true;
                  });
    REQUIRE(rig.rig.run_until([&] { return done; }));
    CHECK(outcome.code() == Code::invalid_argument);
    CHECK(outcome.effect() == Effect::none);
}

TEST_CASE("a listing is in order, complete over many pages, and filtered by prefixes") {
    StoreRig rig;
    std::vector<std::string> names;
    fs::create_directories(rig.root + "/d/e");
    for (int i = 0; i < 700; ++i) {
        const std::string number = std::to_string(1000 + i);
        names.push_back((i % 3 == 0   ? "d/e/"
                         : i % 3 == 1 ? "d/"
                                      : "f") +
                        number + std::string(100, 'o'));
        std::ofstream(rig.root + "/" + names.back()) << i;
    }
    std::ofstream(rig.root + "/.a.0123456789abcdef.weft-tmp") << "unfinished";
    fs::create_symlink("d", rig.root + "/link");
    std::vector<std::string> sorted = names;
    // By parts: names below "d/e" sort by "e", after the digits.
    std::sort(sorted.begin(), sorted.end());
    CHECK(list(rig) == sorted);
    std::vector<std::string> below;
    for (const std::string& name : sorted) {
        if (name.starts_with("d/e/10")) below.push_back(name);
    }
    CHECK(list(rig, "d/e/10") == below);
    CHECK(list(rig, "nothing").empty());
    storage::ListRequest bad;
    bad.set_prefix("../");
    CHECK(rig.call(storage::StoreMethods::List, bad).status().code() == Code::invalid_argument);
}

TEST_CASE("a client reads an extent by itself until its lease ends") {
    StoreRig rig;
    const std::string bytes = pattern(3'000'000);
    REQUIRE(rig.put("a", bytes).ok());
    storage::Client client = rig.make_client();
    const Buffer got = rig.run(client.read_extent("a", 1234, 1'000'000)).value();
    CHECK(as_text(got.bytes()) == std::string_view(bytes).substr(1234, 1'000'000));
    CHECK(rig.run(client.read_extent("a", 2'999'000, 5000)).value().size() == 1000);
    CHECK(rig.run(client.read_extent("a", 3'000'000, 1)).status().code() == Code::out_of_range);
    CHECK(rig.run(client.read_extent("a", 0, 17u << 20)).status().code() == Code::invalid_argument);
    CHECK(rig.run(client.read_extent("b", 0, 1)).status().code() == Code::not_found);

    storage::OpenExtentRequest open;
    open.set_name("a");
    open.set_length(1000);
    open.set_lease_ms(50);
    const auto lent = rig.call(storage::StoreMethods::OpenExtent, open).value();
    const RegionRef ref = from_proto(lent.data()).value();
    Buffer local = rig.client_runtime->allocate(1000).value();
    const auto read = [&] { return rig.run(read_ref(client.channel(), ref, local)); };
    CHECK(read().ok());
    rig.rig.run_for(60ms);
    CHECK(read().code() == Code::permission_denied);
}

TEST_CASE("every extent of an object that is damaged on the disk is DATA_LOSS") {
    StoreRig rig;
    REQUIRE(rig.put("a", pattern(3'000'000)).ok());
    const std::string path = rig.root + "/a";
    if (::getxattr(path.c_str(), "user.weft.crc32c", nullptr, 0) < 0) {
        test::note_capability("storage", "not tested here: this file system keeps no checksums");
        return;
    }
    storage::Client client = rig.make_client();
    CHECK(rig.run(client.read_extent("a", 0, 100)).ok());
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(2'000'000);
    file << "\xff\xfe" << std::flush;
    for (const std::uint64_t at : {0u, 1'999'990u, 2'999'000u}) {
        const Status status = rig.run(client.read_extent("a", at, 100)).status();
        CHECK(status.code() == Code::data_loss);
        CHECK_THAT(std::string(status.text()), Contains("damaged on the server's disk"));
    }
}

TEST_CASE("settings are kept in memory, within limits") {
    StoreRig rig;
    const auto set = [&](const std::string& key, const std::string& value) {
        storage::Setting setting;
        setting.set_key(key);
        setting.set_value(value);
        const auto next = rig.call(storage::StoreMethods::NextVersion, {});
        setting.mutable_version()->set_number(next->number());
        return rig.call(storage::StoreMethods::SetConfig, setting).status();
    };
    const auto show = [&](const std::string& key) {
        storage::GetConfigRequest request;
        request.set_key(key);
        return rig.call(storage::StoreMethods::GetConfig, request);
    };
    CHECK(show("k").status().code() == Code::not_found);
    REQUIRE(set("k", "v").ok());
    REQUIRE(set("k", "w").ok());
    CHECK(show("k").value().value() == "w");
    CHECK(set("", "v").code() == Code::invalid_argument);
    CHECK(set(std::string(257, 'k'), "v").code() == Code::invalid_argument);
    CHECK(set("k", std::string(4097, 'v')).code() == Code::invalid_argument);
}

TEST_CASE("a new server removes only the unfinished files of a killed one") {
    StoreRig rig;
    REQUIRE(rig.put("d/a", "whole").ok());
    std::ofstream(rig.root + "/d/.a.0123456789abcdef.weft-tmp") << "half";
    std::ofstream(rig.root + "/.b.0123456789abcdef.weft-tmp") << "half";
    std::ofstream(rig.root + "/.hidden") << "mine";
    rig.rig.runtimes.clear();
    rig.store.reset();
    const storage::Root root = storage::Root::open(rig.root).value();
    CHECK(root.removed_unfinished() == 2);
    CHECK(rig.unfinished() == 0);
    CHECK(fs::exists(rig.root + "/.hidden"));
    CHECK(test::read_text(rig.root + "/d/a") == "whole");
}

TEST_CASE("the error names a root that can't be served") {
    StoreRig rig;
    const auto why = [](const std::string& path) { return storage::Root::open(path).status(); };
    CHECK(why(rig.files.path + "/nothing").code() == Code::not_found);
    CHECK_THAT(std::string(why(rig.files.path + "/nothing").text()), Contains("/nothing"));
    std::ofstream(rig.files.path + "/file") << "x";
    CHECK(why(rig.files.path + "/file").code() == Code::failed_precondition);
    // The rig's store serves it already.
    const Status taken = why(rig.root);
    CHECK(taken.code() == Code::failed_precondition);
    CHECK_THAT(std::string(taken.text()), Contains("served by another server"));
}

TEST_CASE("a put on a full disk is RESOURCE_EXHAUSTED, and the server keeps running") {
    StoreRig rig;
    const storage::Fd fd = rig.source(pattern(2u << 20));
    REQUIRE(rig.put("b", "so that both arenas are there").ok());  // Arenas are files as well.
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{1u << 20, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    storage::Client client = rig.make_client();
    const Status status = rig.run(client.put(fd.get(), "source", "a", {})).status();
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::signal(SIGXFSZ, handler);
    INFO(status.to_string());
    CHECK(status.code() == Code::resource_exhausted);
    CHECK_THAT(std::string(status.text()), Contains("'a' in the root"));
    CHECK(rig.unfinished() == 0);
    CHECK(rig.put("a", "small").ok());
}
