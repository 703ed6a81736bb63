// The end of a runtime while peers write its memory: memory that `release` returned keeps every
// byte, whether the peer continues, is stopped in the middle of its copy, or is killed. Memory that
// a stopped peer may still write is kept for ever instead, and `release` is not called.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <new>

#include <weft/runtime.h>

#include "base/random.h"
#include "support/catch.h"
#include "support/hold_server.h"
#include "support/private_memory.h"
#include "support/rdma_host.h"
#include "support/seed.h"
#include "support/test_timeout.h"
#include "support/usable.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr std::size_t bytes = 768 * 1024;  // More than any transport moves in one turn.
constexpr std::byte poison{0xa5}, written{0x3c};

// State that the owner and the writing process share.
struct Board {
    std::atomic<bool> is_ready{false};
    std::atomic<std::uint64_t> puts{0};
    std::atomic<bool> is_over{false};
    char uri[200] = {};
    RegionRef ref;
};

// A mapping of its own, which no allocator reuses.
template <class T>
T* map_shared(std::size_t size) {
    void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    return static_cast<T*>(at);
}

// Puts to the memory that the board names until a put fails.
[[noreturn]] void write_on(Board& board) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(120);
    Runtime runtime = Runtime::create({.wait = WaitMode::spin, .manual = true}).value();
    const Buffer source = runtime.allocate(bytes).value();
    std::memset(source.data(), static_cast<int>(written), bytes);
    while (!board.is_ready) ::usleep(100);
    const Channel channel = runtime.connect(std::string(board.uri)).value();
    bool goes_on = true;
    const auto put = [&](auto& again) -> void {
        channel.put(board.ref, 0, source, {.timeout = test_timeout},
                    [&, again](const Status& status) {
                        goes_on = goes_on && status.ok();
                        ++board.puts;
                        if (goes_on) again(again);
                        board.is_over = !goes_on;
                    });
    };
    put(put);
    put(put);
    (void)runtime.turn_until([&] { return !goes_on; }, test_timeout);
    ::_exit(0);
}

enum class Fate : std::uint8_t { runs, is_stopped, is_killed };

struct Writer {
    explicit Writer(Board& board) : pid(::fork()) {
        REQUIRE(pid >= 0);
        if (pid == 0) write_on(board);
    }
    ~Writer() {
        if (pid <= 0) return;
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
    }
    void meet(Fate fate) const {
        if (fate == Fate::is_killed) ::kill(pid, SIGKILL);
        if (fate != Fate::is_stopped) return;
        ::kill(pid, SIGSTOP);
        REQUIRE(::waitpid(pid, nullptr, WUNTRACED) == pid);
    }
    // Returns after the last write of the process.
    void leave() {
        ::kill(pid, SIGCONT);
        REQUIRE(::waitpid(pid, nullptr, 0) == pid);
        pid = -1;
    }

    pid_t pid;
};

Runtime make_owner() {
    RuntimeOptions options;
    options.wait = WaitMode::spin;
    options.manual = true;
    options.arena_bytes_max = 16 << 20;
    return Runtime::create(options).value();
}

class Ends {
  public:
    Ends(std::string uri, std::uint64_t seed)
        : uri_(std::move(uri)),
          random_(seed),
          page_(map_shared<std::byte>(sizeof(Board))),
          private_(map_shared<std::byte>(bytes)) {}
    ~Ends() {
        ::munmap(page_, sizeof(Board));
        ::munmap(private_, bytes);
    }

    void end_one(Fate fate, bool is_private) {
        auto& board = *new (page_) Board;
        Writer writer(board);
        bool is_back = false;
        // The test's own handle: the arena stays mapped, and the memory is not reused.
        Buffer memory;
        Region region;  // The handle outlives the runtime.
        {
            HoldServer service;
            Runtime owner = make_owner();
            REQUIRE(owner.serve(service, uri_).ok());
            memory = is_private ? Buffer::adopt({private_, bytes}, nullptr)
                                : owner.allocate(bytes).value();
            const Bytes lent = memory.bytes();
            const auto release = [&is_back, lent] {
                std::memset(lent.data(), static_cast<int>(poison), lent.size());
                is_back = true;
            };
            region = owner.expose(Buffer::adopt(lent, release), {.access = Access::write}).value();
            owner.addresses().front().copy(board.uri, sizeof board.uri - 1);
            board.ref = region.ref();
            board.is_ready = true;
            const std::uint64_t puts = 1 + random_.next() % 4;
            REQUIRE(owner.turn_until([&] { return board.puts >= puts || board.is_over; },
                                     test_timeout));
            for (std::uint64_t turns = random_.next() % 64; turns > 0; --turns) owner.turn();
            writer.meet(fate);
            if (random_.next() % 2 == 0) region.close();
        }
        const bool was_open = bool(region);
        bool is_told = false;
        if (was_open) region.close([&is_told] { is_told = true; });
        CHECK((!was_open || is_told == is_back));
        writer.leave();
        kept_ += !is_back;
        ++ends_;
        if (!is_back) return;
        INFO("end " << ends_ << ", fate " << static_cast<int>(fate) << ", private " << is_private);
        REQUIRE(std::all_of(memory.data(), memory.data() + bytes,
                            [](std::byte byte) { return byte == poison; }));
    }

    void run(std::size_t ends) {
        // Where the kernel denies access to private memory, puts to it fail, or none is exposed.
        const bool has_private = !uri_.starts_with("sm:") || test::has_private_memory();
        (void)::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
        for (std::size_t i = 0; i < ends; ++i) {
            const auto fate = static_cast<Fate>(i % 3);
            const std::size_t kept = kept_;
            end_one(fate, has_private && i % 2 == 1);
            // A running peer gives up its access, and a dead peer has none.
            CHECK((kept == kept_ || fate == Fate::is_stopped));
        }
    }
    std::size_t kept() const { return kept_; }

  private:
    const std::string uri_;
    base::SeededRandom random_;
    std::byte* const page_;
    std::byte* const private_;
    std::size_t ends_ = 0;
    std::size_t kept_ = 0;
};

void check(const std::string& uri, std::size_t ends) {
    if (!is_in_this_build(uri)) return;
    const std::uint64_t seed = setting("TEST_SEED", 1);
    INFO("TEST_SEED=" << seed);
    Ends all(uri, seed);
    all.run(ends);
    INFO("kept for ever: " << all.kept() << " of " << ends);
    // Where the owner copies the bytes itself, no memory has to be kept.
    if (!uri.starts_with("sm:")) CHECK(all.kept() == 0);
}

std::string sm_uri() { return "sm://end-" + std::to_string(::getpid()); }
std::string unix_uri() { return "unix:///tmp/weft-end-" + std::to_string(::getpid()); }

}  // namespace

TEST_CASE("sm: memory released at the end of a runtime keeps every byte when peers write it",
          "[seeded]") {
    check(sm_uri(), 24);
}
TEST_CASE("tcp: memory released at the end of a runtime keeps every byte when peers write it",
          "[seeded]") {
    check("tcp://127.0.0.1:0", 18);
}
TEST_CASE("unix: memory released at the end of a runtime keeps every byte when peers write it",
          "[seeded]") {
    check(unix_uri(), 18);
}
TEST_CASE("ofi+tcp: memory released at a runtime's end keeps every byte when peers write it",
          "[seeded]") {
    check("ofi+tcp://127.0.0.1:0", 9);
}
TEST_CASE("verbs: memory released at the end of a runtime keeps every byte when peers write it",
          "[seeded]") {
    if (const auto uri = test::rdma_uri()) check(*uri, 18);
}

TEST_CASE("sm: 1000 ends of runtimes change no byte of released memory", "[.][late]") {
    check(sm_uri(), 1000);
}
TEST_CASE("tcp: 1000 ends of runtimes change no byte of released memory", "[.][late]") {
    check("tcp://127.0.0.1:0", 1000);
}
TEST_CASE("unix: 1000 ends of runtimes change no byte of released memory", "[.][late]") {
    check(unix_uri(), 1000);
}
TEST_CASE("ofi+tcp: 1000 ends of runtimes change no byte of released memory", "[.][late]") {
    check("ofi+tcp://127.0.0.1:0", 1000);
}
