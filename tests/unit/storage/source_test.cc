// Files that other programs write to while they are put into a store, or got from one.
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <future>

#include "support/sm_node.h"
#include "support/store_rig.h"
#include "support/test_timeout.h"

namespace weft::storage_source_test {
namespace {

using Catch::Matchers::Contains;
using test::pattern;
using test::read_text;
using test::StoreRig;

constexpr std::size_t size = 3 * storage::chunk_bytes;

// Dates the last write back, so that the next one falls into another tick of the file system.
void make_old(const std::string& path) {
    const timespec times[] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

void write_at(const std::string& path, std::uint64_t offset, const std::string& bytes) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file << bytes;
}

struct Change {
    const char* title;
    void (*make)(const std::string& path);
    const char* reported;
};

const Change changes[] = {
    {"is written in place", [](const std::string& path) { write_at(path, 0, "other bytes"); },
     "(12582912 bytes before, 12582912 after)"},
    {"grows", [](const std::string& path) { write_at(path, size, "more"); },
     "(12582912 bytes before, 12582916 after)"},
    {"shrinks", [](const std::string& path) { std::filesystem::resize_file(path, size - 5); },
     "(12582912 bytes before, 12582907 after)"},
    {"is emptied", [](const std::string& path) { std::filesystem::resize_file(path, 0); },
     "(12582912 bytes before, 0 after)"},
};

// Puts `path`, and changes it when the first of three chunks is stored.
Result<storage::TransferResult> put_changing(StoreRig& rig, const std::string& path,
                                             const std::function<void()>& change) {
    storage::Client client(*rig.client_runtime, rig.client_runtime->connect("sim://server").value(),
                           1);
    const storage::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    bool is_changed = false;
    const auto progress = [&](std::uint64_t) {
        if (!std::exchange(is_changed, true)) change();
    };
    return rig.run(client.put(fd.get(), "'" + path + "'", "object", progress));
}

TEST_CASE("a put of a file that changes meanwhile is ABORTED and stores nothing") {
    StoreRig rig;
    REQUIRE(rig.put("object", "as before"));
    const std::string path = rig.files.path + "/source";
    for (const Change& change : changes) {
        INFO(change.title);
        std::ofstream(path, std::ios::binary) << pattern(size);
        make_old(path);
        const auto done = put_changing(rig, path, [&] { change.make(path); });
        REQUIRE_FALSE(done);
        CHECK(done.status().code() == Code::aborted);
        CHECK(done.status().effect() == Effect::none);
        CHECK_THAT(done.status().to_string(),
                   Contains("can't put 'object': '" + path + "' changed while it was read " +
                            change.reported));
        CHECK(rig.get("object").value() == "as before");
    }
    CHECK(rig.rig.run_until([&] { return rig.unfinished() == 0; }, 1min));
}

TEST_CASE("a put of a file that is renamed or replaced meanwhile stores the opened file") {
    StoreRig rig;
    const std::string path = rig.files.path + "/source";
    std::ofstream(path, std::ios::binary) << pattern(size);
    const auto done = put_changing(rig, path, [&] {
        std::ofstream(path + ".new", std::ios::binary) << "the next version";
        std::filesystem::rename(path + ".new", path);
    });
    REQUIRE(done);
    CHECK(rig.get("object").value() == pattern(size));
}

TEST_CASE("a read from a silent source ends after the given time") {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const storage::Fd from(ends[0]);
    storage::Fd to(ends[1]);
    std::array<std::byte, 8> memory{};
    const auto read = [&] { return storage::read_for(from.get(), memory, 1ms, "pipe").value(); };
    CHECK(read().bytes == 0);
    CHECK_FALSE(read().is_at_end);
    REQUIRE(::write(to.get(), "abc", 3) == 3);
    const storage::ReadPart some = read();
    CHECK(some.bytes == 3);
    CHECK_FALSE(some.is_at_end);
    REQUIRE(::write(to.get(), "0123456789", 10) == 10);
    CHECK(read().bytes == memory.size());
    to.reset();
    const storage::ReadPart rest = read();
    CHECK(rest.bytes == 2);
    CHECK(rest.is_at_end);
    CHECK(storage::read_for(ends[1], memory, 1min, "pipe").status().code() ==
          Code::failed_precondition);
}

TEST_CASE("a put from a source that stays silent ends with its call") {
    const test::TemporaryDirectory files;
    std::filesystem::create_directories(files.path + "/root/directory");
    std::unique_ptr<storage::Store> store;
    std::optional<Runtime> server = Runtime::create().value();
    store = storage::Store::open(*server, files.path + "/root", "").value();
    REQUIRE(server->serve(*store, "sm://" + test::unique_name("silent")).ok());
    Runtime runtime = Runtime::create().value();
    storage::Client client(runtime, runtime.connect(server->addresses().at(0)).value(), 2);
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const storage::Fd from(ends[0]);
    storage::Fd to(ends[1]);
    const auto put = [&](const char* name, storage::Progress progress) {
        return std::async(std::launch::async, [&, name, progress] {
            return runtime.block_on(client.put(from.get(), "pipe", name, progress)).status();
        });
    };

    auto refused = put("directory", {});
    const bool is_refused = refused.wait_for(test::test_timeout) == std::future_status::ready;
    CHECK(is_refused);
    if (!is_refused) to.reset();
    CHECK_THAT(refused.get().to_string(), Contains("can't put 'directory'"));

    std::promise<void> sent;
    auto lost = put("object", [&](std::uint64_t) { sent.set_value(); });
    const std::string chunks = pattern(2 * storage::chunk_bytes);  // It awaits the first of two.
    REQUIRE(storage::write_all(to.get(), as_bytes(chunks), "pipe").ok());
    REQUIRE(sent.get_future().wait_for(test::test_timeout) == std::future_status::ready);
    server.reset();
    CHECK(lost.wait_for(test::test_timeout) == std::future_status::ready);
    to.reset();
    CHECK(lost.get().effect() == Effect::none);
}

TEST_CASE("a put from the middle of a file takes the rest, and fails when the rest shrinks") {
    StoreRig rig;
    const std::string path = rig.files.path + "/source";
    std::ofstream(path, std::ios::binary) << pattern(100);
    const storage::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(::lseek(fd.get(), 60, SEEK_SET) == 60);
    storage::Client client = rig.make_client();
    REQUIRE(rig.run(client.put(fd.get(), "source", "object", {})));
    CHECK(rig.get("object").value() == pattern(100).substr(60));

    const auto source = storage::SourceCheck::begin(fd.get(), "source");
    REQUIRE(source);
    CHECK(source->check(0, true).ok());
    REQUIRE(::lseek(fd.get(), 60, SEEK_SET) == 60);
    const auto again = storage::SourceCheck::begin(fd.get(), "source");
    CHECK(again->check(30, false).ok());
    CHECK(again->check(30, true).code() == Code::aborted);
    CHECK(again->check(40, true).ok());
}

TEST_CASE("a get is ABORTED when the object's file is written to meanwhile") {
    StoreRig rig;
    const std::string path = rig.root + "/object";
    for (const Change& change : changes) {
        INFO(change.title);
        std::ofstream(path, std::ios::binary) << pattern(size);
        make_old(path);
        storage::Client client(*rig.client_runtime,
                               rig.client_runtime->connect("sim://server").value(), 2);
        storage::Sink sink = storage::Sink::file(rig.files.path + "/back").value();
        bool is_changed = false;
        const auto done = rig.run(client.get("object", sink, [&](std::uint64_t) {
            if (!std::exchange(is_changed, true)) change.make(path);
        }));
        REQUIRE_FALSE(done);
        CHECK(done.status().code() == Code::aborted);
        CHECK_THAT(done.status().to_string(), Contains("'object' changed while it was read"));
        CHECK_FALSE(std::filesystem::exists(rig.files.path + "/back"));
    }
}

}  // namespace
}  // namespace weft::storage_source_test
