// One transfer of more than 4 GiB over each transport, with folded memory, so that it fits.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include <weft/runtime.h>

#include "base/unique_fd.h"
#include "support/catch.h"
#include "support/private_memory.h"
#include "support/test_timeout.h"
#include "support/usable.h"

using namespace weft;
using test::test_timeout;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t huge_bytes = 4096 * mib + 2 * mib + 4097;

// Address space of huge_bytes: all but the last bytes map the same MiB over and over.
class Folded {
  public:
    Folded() : file_(::memfd_create("weft-folded", MFD_CLOEXEC)) {
        REQUIRE(file_);
        REQUIRE(::ftruncate(file_.get(), static_cast<off_t>(fold_bytes + tail_bytes)) == 0);
        void* space = ::mmap(nullptr, space_bytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        REQUIRE(space != MAP_FAILED);
        data_ = static_cast<std::byte*>(space);
        for (std::size_t at = 0; at < folded_bytes; at += fold_bytes) map(at, fold_bytes, 0);
        map(folded_bytes, tail_bytes, fold_bytes);
    }
    ~Folded() { ::munmap(data_, space_bytes); }
    Folded(const Folded&) = delete;
    Folded& operator=(const Folded&) = delete;

    Buffer buffer() { return Buffer::adopt({data_, huge_bytes}, nullptr); }
    Bytes fold() { return {data_, fold_bytes}; }
    // The bytes beyond 4 GiB.
    Bytes tail() { return {data_ + folded_bytes, huge_bytes - folded_bytes}; }

  private:
    static constexpr std::size_t fold_bytes = mib;
    static constexpr std::size_t folded_bytes = 4096 * mib;
    static constexpr std::size_t tail_bytes = 3 * mib;
    static constexpr std::size_t space_bytes = folded_bytes + tail_bytes;
    static_assert(huge_bytes <= space_bytes);

    void map(std::size_t at, std::size_t bytes, std::size_t of_file) {
        REQUIRE(::mmap(data_ + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                       file_.get(), static_cast<off_t>(of_file)) != MAP_FAILED);
    }
    const base::UniqueFd file_;
    std::byte* data_ = nullptr;
};

void fill(Bytes bytes, unsigned seed) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(seed + i * 7 + i / 4096);
    }
}
bool are_same(ByteView a, ByteView b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

void transfer_over(const std::string& uri) {
#ifdef __SANITIZE_THREAD__
    WARN("thread sanitizer keeps four times the touched memory: not tested");
    return;
#endif
    if (!test::is_in_this_build(uri)) return;
    Folded theirs, ours;
    Runtime server = Runtime::create({}).value();
    REQUIRE(server.listen(uri).ok());
    const Region region = server.expose(theirs.buffer(), {.access = Access::read_write}).value();
    Runtime client = Runtime::create({.manual = true}).value();
    const Channel channel = client.connect(server.addresses().front()).value();
    const auto run = [&](auto start) {
        bool done = false;
        Status outcome;
        start([&](const Status& status) {
            outcome = status;
            done = true;
        });
        REQUIRE(client.turn_until([&] { return done; }, 4 * test_timeout));
        INFO(outcome.to_string());
        REQUIRE(outcome.ok());
    };
    const CallOptions options{.timeout = 4 * test_timeout};

    fill(theirs.fold(), 1);
    fill(theirs.tail(), 2);
    run([&](auto done) { channel.get(region.ref(), 0, ours.buffer(), options, done); });
    CHECK(are_same(ours.fold(), theirs.fold()));
    CHECK(are_same(ours.tail(), theirs.tail()));

    fill(ours.fold(), 3);
    fill(ours.tail(), 4);
    run([&](auto done) { channel.put(region.ref(), 0, ours.buffer(), options, done); });
    CHECK(are_same(ours.fold(), theirs.fold()));
    CHECK(are_same(ours.tail(), theirs.tail()));
}

}  // namespace

TEST_CASE("more than 4 GiB in one transfer over sm") {
    if (test::has_private_memory()) transfer_over("sm://huge-" + std::to_string(::getpid()));
}
TEST_CASE("more than 4 GiB in one transfer over tcp") { transfer_over("tcp://127.0.0.1:0"); }
TEST_CASE("more than 4 GiB in one transfer over unix sockets") {
    transfer_over("unix://" + (std::filesystem::temp_directory_path() /
                               ("weft-huge-" + std::to_string(::getpid())))
                                  .string());
}
TEST_CASE("more than 4 GiB in one transfer over ofi+tcp") {
    transfer_over("ofi+tcp://127.0.0.1:0");
}
