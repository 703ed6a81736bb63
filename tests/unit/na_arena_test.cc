#include "na/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "na/memory_file.h"
#include "support/capability.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/no_more_memory.h"
#include "support/seed.h"

using namespace weft;
using na::Arena;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

std::size_t bytes_in_memory(int fd) {
    struct stat is {};
    REQUIRE(::fstat(fd, &is) == 0);
    return static_cast<std::size_t>(is.st_blocks) * 512;
}

std::size_t bytes_in_memory(Arena& arena) { return bytes_in_memory(*arena.fd()); }

bool is_aligned(const Buffer& buffer, std::size_t to) {
    return reinterpret_cast<std::uintptr_t>(buffer.data()) % to == 0;
}

Buffer take(Arena& arena, std::size_t bytes) {
    Result<Buffer> buffer = arena.allocate(bytes);
    INFO(buffer.status().to_string());
    REQUIRE(buffer.ok());
    return *buffer;
}

}  // namespace

TEST_CASE("arena: buffers are page aligned, and 2 MiB aligned from 2 MiB on") {
    auto arena = Arena::make(64 * mib);
    std::vector<Buffer> kept;
    for (std::size_t bytes : {std::size_t{1}, std::size_t{4097}, mib, 2 * mib, 3 * mib}) {
        kept.push_back(take(*arena, bytes));
        CHECK(kept.back().size() == bytes);
        CHECK(is_aligned(kept.back(), bytes >= 2 * mib ? 2 * mib : 4096));
        std::memset(kept.back().data(), 0x5a, bytes);
        const auto offset = arena->offset_of(kept.back().bytes());
        REQUIRE(offset);
        CHECK(*offset % (bytes >= 2 * mib ? 2 * mib : 4096) == 0);
    }
}

TEST_CASE("arena: allocate names the numbers when memory is exhausted, and works after a free") {
    auto arena = Arena::make(8 * mib);
    CHECK(arena->allocate(0).status().code() == Code::invalid_argument);
    CHECK(arena->allocate(9 * mib).status().code() == Code::resource_exhausted);
    std::vector<Buffer> all;
    for (int i = 0; i < 8; ++i) all.push_back(take(*arena, mib));
    const Status full = arena->allocate(1).status();
    CHECK(full.code() == Code::resource_exhausted);
    CHECK(full.text().find("8388608") != std::string::npos);
    // The holes coalesce in every order of freeing.
    for (int i : {1, 3, 5, 7, 0, 2, 4, 6}) all[static_cast<std::size_t>(i)] = Buffer();
    CHECK(arena->allocated_bytes() == 0);
    CHECK(take(*arena, 8 * mib).size() == 8 * mib);
}

TEST_CASE("arena: a slice keeps its block allocated, and a buffer keeps its arena") {
    auto arena = Arena::make(8 * mib);
    Buffer slice = take(*arena, mib).slice(100, 10);
    Arena* raw = arena.get();
    CHECK(raw->allocated_bytes() == mib);
    arena.reset();
    std::memset(slice.data(), 1, slice.size());
    CHECK(raw->allocated_bytes() == mib);
}

TEST_CASE("arena: offset_of accepts only ranges that lie entirely inside") {
    auto arena = Arena::make(8 * mib);
    Buffer all = take(*arena, 8 * mib);
    CHECK(arena->offset_of(all.bytes()) == 0);
    CHECK(arena->offset_of({all.data() + 8 * mib, 0}) == 8 * mib);
    CHECK(!arena->offset_of({all.data() + 1, 8 * mib}));
    CHECK(!arena->offset_of({all.data() - 1, 2}));
    std::byte own{};
    CHECK(!arena->offset_of({&own, 1}));
}

TEST_CASE("arena: the file is sparse and its size is sealed") {
    auto arena = Arena::make();
    REQUIRE(arena->fd().ok());
    CHECK(bytes_in_memory(*arena) == 0);
    CHECK(::ftruncate(*arena->fd(), 4096) != 0);
    CHECK((::fcntl(*arena->fd(), F_GET_SEALS) & F_SEAL_SEAL) != 0);
    CHECK((::fcntl(*arena->fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("arena: freed pages stay allocated within a budget and are released beyond it") {
    auto arena = Arena::make(1024 * mib);
    {
        Buffer buffer = take(*arena, 320 * mib);
        for (std::size_t at = 0; at < buffer.size(); at += 4096) buffer.data()[at] = std::byte{1};
        CHECK(bytes_in_memory(*arena) == 320 * mib);
    }
    CHECK(bytes_in_memory(*arena) == 256 * mib);
    Buffer again = take(*arena, 200 * mib);
    for (std::size_t at = 0; at < again.size(); at += 4096) again.data()[at] = std::byte{2};
    CHECK(bytes_in_memory(*arena) == 256 * mib);
}

TEST_CASE("arena: freed memory is released also after the end of its runtime") {
    auto arena = Arena::make(1024 * mib);
    Buffer buffer = take(*arena, 320 * mib);
    const base::UniqueFd file(::dup(*arena->fd()));  // To look at its size after close_fd().
    for (std::size_t at = 0; at < buffer.size(); at += 4096) buffer.data()[at] = std::byte{1};
    arena->close_fd();
    CHECK(bytes_in_memory(file.get()) == 320 * mib);
    buffer = Buffer();
    CHECK(bytes_in_memory(file.get()) == 256 * mib);
}

TEST_CASE("arena: a large buffer over an old block of peers has only that block cleared") {
    auto arena = Arena::make(1024 * mib);
    {
        const Buffer before = take(*arena, 4 * mib);
        const Buffer small = *arena->allocate(64 << 10, Arena::Use::peers);
        const Buffer behind = take(*arena, mib);
        std::memset(small.data(), 1, small.size());
    }
    const Buffer all = take(*arena, 512 * mib);
    CHECK(bytes_in_memory(*arena) == 64 << 10);
    const std::size_t at = 4 * mib;
    CHECK(std::all_of(all.data() + at, all.data() + at + (64 << 10),
                      [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_CASE("arena: memory that a device has pinned keeps its pages when it is freed") {
    auto arena = Arena::make(1024 * mib);
    {
        Buffer buffer = take(*arena, 320 * mib);
        for (std::size_t at = 0; at < buffer.size(); at += 4096) buffer.data()[at] = std::byte{1};
        REQUIRE(arena->hold(300 * mib, 4 * mib));
        REQUIRE(arena->hold(302 * mib, 2 * mib));
        REQUIRE(arena->hold(316 * mib, 2 * mib));
    }
    // The budget keeps the lowest pages.
    CHECK(bytes_in_memory(*arena) == 256 * mib);
    arena->release(300 * mib, 4 * mib);
    {
        Buffer again = take(*arena, 320 * mib);
        for (const std::size_t kept : {302, 303, 316, 317}) {
            CHECK(again.data()[kept * mib] == std::byte{1});
        }
        CHECK(again.data()[300 * mib] == std::byte{1});  // It was held when it was freed.
        CHECK(again.data()[304 * mib] == std::byte{0});
        CHECK(again.data()[318 * mib] == std::byte{0});
        for (std::size_t at = 0; at < again.size(); at += 4096) again.data()[at] = std::byte{2};
    }
    arena->release(302 * mib, 2 * mib);
    arena->release(316 * mib, 2 * mib);
    { Buffer untouched = take(*arena, 320 * mib); }
    CHECK(bytes_in_memory(*arena) == 252 * mib);  // The held pages lay above the budget.
}

TEST_CASE("arena: the budget is enforced later when all cached pages are held") {
    auto arena = Arena::make(1024 * mib);
    { Buffer first = take(*arena, 4096); }
    REQUIRE(arena->hold(0, 1024 * mib));
    {
        Buffer buffer = take(*arena, 320 * mib);
        for (std::size_t at = 0; at < buffer.size(); at += 4096) buffer.data()[at] = std::byte{1};
    }
    CHECK(bytes_in_memory(*arena) == 320 * mib);
    arena->release(0, 1024 * mib);
    { Buffer again = take(*arena, 4096); }
    CHECK(bytes_in_memory(*arena) == 256 * mib);
}

TEST_CASE("arena: random allocating and freeing never overlaps and leaves nothing allocated",
          "[seeded]") {
    const std::uint64_t seed = test::seed_of(GENERATE(range(0, 3)));
    INFO("repeat with TEST_SEED=" << seed);
    base::SeededRandom random(seed);
    auto arena = Arena::make(64 * mib);
    std::vector<Buffer> kept;
    for (int step = 0; step < 3000; ++step) {
        if (!kept.empty() && random.next() % 2 == 0) {
            std::swap(kept[random.next() % kept.size()], kept.back());
            const Buffer& last = kept.back();
            const auto mark = static_cast<std::byte>(last.size());
            REQUIRE(last.data()[0] == mark);
            REQUIRE(last.data()[last.size() - 1] == mark);
            kept.pop_back();
            continue;
        }
        const std::size_t bytes = 1 + random.next() % (1ull << (random.next() % 23));
        Result<Buffer> buffer = arena->allocate(bytes);
        if (!buffer) continue;
        buffer->data()[0] = buffer->data()[bytes - 1] = static_cast<std::byte>(bytes);
        kept.push_back(std::move(*buffer));
    }
    kept.clear();
    CHECK(arena->allocated_bytes() == 0);
    CHECK(take(*arena, 64 * mib).size() == 64 * mib);
}

TEST_CASE("arena: threads may allocate and free at once") {
    auto arena = Arena::make(64 * mib);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&arena, t] {
            for (int i = 0; i < 500; ++i) {
                Result<Buffer> buffer = arena->allocate(std::size_t(1 + (i * 7919 + t) % 100'000));
                if (buffer) buffer->data()[0] = std::byte{1};
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(arena->allocated_bytes() == 0);
}

TEST_CASE("arena: a forked child can neither allocate nor release its parent's memory") {
    auto arena = Arena::make(1024 * mib);
    Buffer kept = take(*arena, 300 * mib);
    for (std::size_t at = 0; at < kept.size(); at += 4096) kept.data()[at] = std::byte{1};
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const bool refused = arena->allocate(1).status().code() == Code::failed_precondition;
        kept = Buffer();
        ::_exit(refused ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    for (std::size_t at = 0; at < kept.size(); at += 4096) REQUIRE(kept.data()[at] == std::byte{1});
}

// The flags of the mapping that contains `memory`: "rd wr sh mr mw me ms sd".
static std::string flags_of_mapping(const std::byte* memory) {
    const auto wanted = reinterpret_cast<std::uintptr_t>(memory);
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    for (bool is_found = false; std::getline(maps, line);) {
        std::uintptr_t begin = 0, end = 0;
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
            is_found = begin <= wanted && wanted < end;
        }
        if (is_found && line.starts_with("VmFlags:")) return line.substr(9);
    }
    return "";
}

TEST_CASE("arena: a core dump contains neither this arena nor the mapped arena of an sm peer") {
    auto arena = Arena::make(256 * mib);
    const Buffer buffer = take(*arena, 4096);
    const na::Mapping view = na::map_sparse(*arena->fd(), arena->size()).value();
    for (const std::byte* memory : {buffer.data(), view.data()}) {
        const std::string flags = flags_of_mapping(memory);
        CAPTURE(flags);
        CHECK(flags.find("dd") != std::string::npos);  // MADV_DONTDUMP
    }
}

#ifdef WEFT_TEST_MEMORY_LIMITS
// Bytes of arena mappings that are resident and locked.
static std::size_t locked_bytes() {
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    std::size_t kib = 0;
    for (bool is_arena = false; std::getline(maps, line);) {
        if (line.find(" rw-s ") != std::string::npos) {
            is_arena = line.find("weft-arena") != std::string::npos;
        }
        if (is_arena && line.starts_with("Locked:")) kib += std::stoull(line.substr(7));
    }
    return kib * 1024;
}

TEST_CASE("arena: mlockall of future mappings locks the pages that are touched, and no others") {
    constexpr int not_allowed = 100;
    // (Sanitizers make mlockall() do nothing.)
    const int end = test::end_of_child([] {
        if (::mlockall(MCL_FUTURE) != 0) return not_allowed;
        auto arena = Arena::make(256 * mib);
        Result<Buffer> buffer = arena->allocate(mib);
        if (!buffer || arena->size() != 256 * mib) return not_allowed;
        // As an sm peer maps it.
        Result<na::Mapping> view = na::map_sparse(*arena->fd(), arena->size());
        if (!view) return not_allowed;
        if (bytes_in_memory(*arena) != 0 || locked_bytes() != 0) return 1;
        std::memset(buffer->data(), 1, mib);
        if (bytes_in_memory(*arena) != mib) return 2;
        return locked_bytes() >= mib && locked_bytes() <= 2 * mib ? 0 : 3;
    });
    if (end == not_allowed) {
        test::note_capability("arena", "no mlockall: RLIMIT_MEMLOCK (ulimit -l) is too low");
        return;
    }
    CHECK(end == 0);
}

TEST_CASE("arena: a refusal names the limit when locked memory is limited") {
    constexpr int not_allowed = 100;
    const test::ChildOutput output = test::output_of_child([] {
        const rlimit limit{8 * mib, 8 * mib};
        // Root may lock any amount.
        if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return not_allowed;
        if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return not_allowed;
        if (::mlockall(MCL_FUTURE) != 0) return not_allowed;
        auto arena = Arena::make(256 * mib);
        const Result<Buffer> buffer = arena->allocate(mib);
        if (buffer) return not_allowed;  // Sanitizers make mlockall() do nothing.
        const std::string text(buffer.status().text());
        (void)!::write(STDERR_FILENO, text.data(), text.size());
        return 0;
    });
    if (output.end == not_allowed) {
        test::note_capability("arena", "not tested here: limits on locked memory");
        return;
    }
    CAPTURE(output.text);
    CHECK(output.end == 0);
    CHECK(output.text.find("mlockall") != std::string::npos);
    CHECK(output.text.find("`ulimit -l`") != std::string::npos);
}

TEST_CASE("arena: with little address space the arena takes an eighth and the error says so") {
    const test::ChildOutput output = test::output_of_child([] {
        if (!test::limit_address_space(std::size_t{2} << 30)) return 2;
        auto arena = Arena::make(std::size_t{16} << 30);
        const bool is_part =
            arena->allocate(mib).ok() && arena->size() >= 256 * mib && arena->size() <= 512 * mib;
        const std::string text(arena->allocate(std::size_t{1} << 30).status().text());
        (void)!::write(STDERR_FILENO, text.data(), text.size());
        return is_part ? 0 : 1;
    });
    CHECK(output.end == 0);
    CHECK(output.text.find("limit on address space, `ulimit -v`") != std::string::npos);
}

TEST_CASE("arena: with little address space the arenas of two peers also fit") {
    CHECK(test::end_of_child([] {
              if (!test::limit_address_space(std::size_t{2} << 30)) return 20;
              std::vector<std::shared_ptr<Arena>> arenas;
              std::vector<na::Mapping> views;
              for (int peers = 0; peers < 2; ++peers) {
                  arenas.push_back(Arena::make(std::size_t{16} << 30));
                  if (!arenas.back()->fd()) return 1 + peers;
                  Result<na::Mapping> view =
                      na::map_sparse(*arenas.back()->fd(), arenas.back()->size());
                  if (!view) return 10 + peers;
                  views.push_back(std::move(*view));
              }
              return 0;
          }) == 0);
}

TEST_CASE("arena: a limit of less than a GiB leaves an arena of 128 MiB") {
    CHECK(test::end_of_child([] {
              if (!test::limit_address_space(512 * mib)) return 20;
              auto arena = Arena::make(std::size_t{16} << 30);
              return arena->allocate(mib).ok() && arena->size() == 128 * mib ? 0 : 1;
          }) == 0);
}
#endif
