// Directories and names of the store's files: durable directories, names that fit.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "storage/listing.h"
#include "storage/unsynced_directories.h"
#include "support/no_more_threads.h"
#include "support/store_rig.h"

using namespace weft;
using test::pattern;
using test::TemporaryDirectory;

TEST_CASE("storage: a directory that another put has just made is durable before it is used") {
    const TemporaryDirectory files;
    const storage::Fd above(::open(files.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int synced = 0, error = 0;
    storage::UnsyncedDirectories* directories = nullptr;
    storage::UnsyncedDirectories unsynced([&](int directory) {
        CHECK(directory == above.get());
        // The other put arrives during this sync.
        if (++synced == 1) error = directories->make(above.get(), "a", "a");
        return 0;
    });
    directories = &unsynced;
    CHECK(unsynced.make(above.get(), "a", "a") == 0);
    CHECK(error == 0);
    CHECK(synced == 2);
    CHECK(unsynced.make(above.get(), "a", "a") == 0);  // It is durable by now.
    CHECK(synced == 2);
}

TEST_CASE("storage: a directory that could not be made durable is synced again by the next put") {
    const TemporaryDirectory files;
    const storage::Fd above(::open(files.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    bool works = false;
    int synced = 0;
    storage::UnsyncedDirectories unsynced([&](int) {
        ++synced;
        errno = EIO;
        return works ? 0 : -1;
    });
    for (int i = 0; i < 5; ++i) CHECK(unsynced.make(above.get(), "a", "a") == EIO);
    CHECK(unsynced.unsynced() == 1);
    works = true;
    CHECK(unsynced.make(above.get(), "a", "a") == 0);
    CHECK(unsynced.unsynced() == 0);
    CHECK(synced == 6);
    CHECK(unsynced.make(above.get(), "a", "a") == 0);  // It is durable by now.
    CHECK(synced == 6);
}

TEST_CASE("storage: a directory that is made again during its sync is synced once more") {
    const TemporaryDirectory files;
    const storage::Fd above(::open(files.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int synced = 0;
    bool works = false;
    storage::UnsyncedDirectories* directories = nullptr;
    storage::UnsyncedDirectories unsynced([&](int) {
        // During the first sync another put makes the directory again, and can't sync it.
        if (++synced == 1) {
            CHECK(::unlinkat(above.get(), "a", AT_REMOVEDIR) == 0);
            CHECK(directories->make(above.get(), "a", "a") == EIO);
            return 0;
        }
        errno = EIO;
        return works ? 0 : -1;
    });
    directories = &unsynced;
    CHECK(unsynced.make(above.get(), "a", "a") == 0);
    CHECK(unsynced.unsynced() == 1);
    works = true;
    CHECK(unsynced.make(above.get(), "a", "a") == 0);
    CHECK(synced == 3);
    CHECK(unsynced.unsynced() == 0);
}

TEST_CASE("storage: a file may have the longest name that the file system takes, and no longer") {
    test::StoreRig rig;
    REQUIRE(rig.put("a", pattern(1000)).ok());
    storage::Client client = rig.make_client();
    for (const std::size_t bytes : {228u, 229u, 254u, 255u}) {
        // A character of three bytes at the place where a temporary name is cut.
        const std::string path = rig.files.path + "/" + std::string(bytes % 3, 'x') + [&] {
            std::string text;
            for (std::size_t i = 0; i < bytes / 3; ++i) text += "\u20ac";
            return text;
        }();
        storage::Sink sink = storage::Sink::file(path).value();
        const Result<storage::TransferResult> moved = rig.run(client.get("a", sink, {}));
        INFO(bytes << ": " << moved.status().to_string());
        CHECK(moved.ok());
        CHECK(test::read_text(path) == pattern(1000));
    }
    // Refused before any download.
    const Status refused =
        storage::Sink::file(rig.files.path + "/" + std::string(256, 'x')).status();
    CHECK(refused.code() == Code::invalid_argument);
}

TEST_CASE("storage: a server without descriptors fails, and never lists a part of the objects") {
    test::StoreRig rig;
    REQUIRE(rig.put("d/e/a", pattern(10)).ok());
    REQUIRE(rig.put("d/b", pattern(10)).ok());
    const storage::Root& root = rig.store->root();
    std::vector<storage::Fd> taken;
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    for (int left = 0; left < 8; ++left) {
        // `left` descriptors below the limit are free.
        const rlimit low{64, before.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
        taken.clear();
        while (true) {
            storage::Fd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
            if (!next) break;
            taken.push_back(std::move(next));
        }
        REQUIRE(taken.size() >= 8);
        taken.resize(taken.size() - static_cast<std::size_t>(left));
        std::vector<std::string> names;
        const Status listed =
            storage::list(root, "", "", [&](const std::string& name, const auto&) {
                names.push_back(name);
                return true;
            });
        const Status made = root.create("x/y").status();
        ::setrlimit(RLIMIT_NOFILE, &before);
        INFO(left << " left: " << listed.to_string() << "; " << made.to_string());
        CHECK((listed.ok() ? names.size() == 2 : listed.code() == Code::resource_exhausted));
        CHECK((made.ok() || made.code() == Code::resource_exhausted));
        CHECK(listed.to_string().find("''") == std::string::npos);
        CHECK(made.to_string().find("''") == std::string::npos);
        if (left == 0) CHECK_FALSE(listed.ok());
        if (left == 7) CHECK((listed.ok() && made.ok()));
    }
}

TEST_CASE("storage: transfers that get no thread end, and leave no trace") {
    const TemporaryDirectory files;
    std::unique_ptr<storage::Store> store;  // Outlives the runtime that serves it.
    Runtime server = Runtime::create().value();
    store = storage::Store::open(server, files.path).value();
    REQUIRE(server.serve(*store, "tcp://127.0.0.1:0").ok());
    Runtime client = Runtime::create().value();
    storage::StoreClient stub(client.connect(server.addresses().front()).value());
    const auto put = [&]() -> Task<Status> {
        storage::PutRequest request;
        request.set_transfer(7);
        request.set_name("d/a");
        const auto got = co_await stub.Put(request, {.timeout = 10s});
        co_return got.status();
    };
    const auto get = [&]() -> Task<Status> {
        storage::GetRequest request;
        request.set_transfer(7);
        request.set_name("d/a");
        const auto got = co_await stub.Get(request, {.timeout = 10s});
        co_return got.status();
    };
    const auto connect = [&]() -> Task<Status> {
        storage::GetConfigRequest request;
        request.set_key("none");
        const auto got = co_await stub.GetConfig(request);
        co_return got.status();
    };
    CHECK(client.block_on(connect()).code() == Code::not_found);
    {
        const test::NoMoreThreads none;
        for (int i = 0; i < 2; ++i) {  // The first round leaves nothing for the second.
            CHECK(client.block_on(put()).code() == Code::resource_exhausted);
            CHECK(client.block_on(get()).code() == Code::resource_exhausted);
        }
    }
    CHECK(client.block_on(get()).code() == Code::not_found);
}
