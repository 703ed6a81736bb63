// The store's journal: a line before each effect, and no effect without its line.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "base/unique_fd.h"
#include "storage/journal.h"
#include "support/store_rig.h"

using namespace weft;
using Catch::Matchers::Contains;
using test::pattern;
using test::StoreRig;

namespace {

Status remove(StoreRig& rig, const std::string& name) {
    storage::DeleteRequest request;
    request.set_name(name);
    return rig.call(storage::StoreMethods::Delete, request).status();
}

}  // namespace

TEST_CASE("journal: each stored or deleted object appends a line") {
    const test::TemporaryDirectory files;
    const std::string journal = files.path + "/journal";
    std::ofstream(journal) << "of an earlier life\n";
    StoreRig rig(journal);
    REQUIRE(rig.put("a/b", pattern(5000)).ok());
    REQUIRE(rig.put("two words\nput\\", pattern(1)).ok());
    REQUIRE(remove(rig, "a/b").ok());
    CHECK(remove(rig, "../a").code() == Code::invalid_argument);
    const std::string text = test::read_text(journal);
    char crc[9];
    std::snprintf(crc, sizeof crc, "%08x", storage::crc32c(0, as_bytes(pattern(5000))));
    CHECK_THAT(text, Catch::Matchers::StartsWith("of an earlier life\nput "));
    CHECK_THAT(text, Contains(" 5000 " + std::string(crc) + " a/b\nput "));
    CHECK_THAT(text, Contains(" two\\x20words\\x0aput\\x5c\ndelete a/b\n"));
    CHECK(std::count(text.begin(), text.end(), '\n') == 4);
}

TEST_CASE("journal: a put or delete fails when its line can't be written") {
    StoreRig rig("/dev/full");
    const Result<storage::TransferResult> put = rig.put("a", pattern(100));
    CHECK(put.status().code() == Code::resource_exhausted);
    CHECK_THAT(std::string(put.status().text()), Contains("the journal '/dev/full'"));
    CHECK(put.status().effect() == Effect::none);
    CHECK(rig.get("a").status().code() == Code::not_found);
    std::ofstream(rig.root + "/b") << "b";
    const Status removed = remove(rig, "b");
    CHECK(removed.code() == Code::resource_exhausted);
    CHECK(removed.effect() == Effect::none);
    CHECK(std::filesystem::exists(rig.root + "/b"));
}

TEST_CASE("journal: a line that was cut off does not swallow the next") {
    const test::TemporaryDirectory files;
    const std::string path = files.path + "/journal";
    std::ofstream(path) << "delete a";  // Cut off when the server was killed.
    {
        storage::Journal journal = storage::Journal::open(path).value();
        REQUIRE(journal.remove("b").ok());
        // The disk is full in the middle of the next line.
        const auto bytes = static_cast<rlim_t>(std::filesystem::file_size(path));
        rlimit before{};
        ::getrlimit(RLIMIT_FSIZE, &before);
        const auto handler = std::signal(SIGXFSZ, SIG_IGN);
        const rlimit low{bytes + 5, before.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
        const Status cut = journal.remove("c");
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
        std::signal(SIGXFSZ, handler);
        CHECK(cut.code() == Code::resource_exhausted);
        REQUIRE(journal.remove("d").ok());
    }
    CHECK(test::read_text(path) == "delete a\ndelete b\ndelet\ndelete d\n");
}

TEST_CASE("journal: zeros that a loss of power left behind do not swallow the next line") {
    const test::TemporaryDirectory files;
    const std::string path = files.path + "/journal";
    const std::string left = "delete a\n" + std::string(5000, '\0');
    std::ofstream(path) << left;
    REQUIRE(storage::Journal::open(path).value().remove("b").ok());
    CHECK(test::read_text(path) == left + "\ndelete b\n");
}

TEST_CASE("journal: a fifo without a reader is refused at once, and one with a reader works") {
    const test::TemporaryDirectory files;
    const std::string path = files.path + "/fifo";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const Status unread = storage::Journal::open(path).status();
    CHECK_THAT(std::string(unread.text()), Contains("can't open the journal '" + path + "'"));
    const base::UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    REQUIRE(reader);
    storage::Journal journal = storage::Journal::open(path).value();
    CHECK(journal.remove("a").ok());
    char line[32]{};
    CHECK(::read(reader.get(), line, sizeof line - 1) > 0);
    CHECK(std::string(line) == "delete a\n");
}

TEST_CASE("journal: the error names a journal that can't be opened") {
    Runtime runtime = Runtime::create({.manual = true}).value();
    const test::TemporaryDirectory files;
    const Status opened =
        storage::Store::open(runtime, files.path, files.path + "/none/journal").status();
    CHECK(opened.code() == Code::not_found);
    CHECK_THAT(std::string(opened.text()), Contains("can't open the journal"));
}
