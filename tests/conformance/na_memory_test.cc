// Memory that can't be accessed fails its transfer, on whichever side it is, and nothing else.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/unique_fd.h"
#include "support/na_rma.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::test::wires;

namespace {

constexpr std::size_t bytes = 64 * 1024;

enum class Kind { read_only, unmapped, cut_file };

const char* name_of(Kind kind) {
    switch (kind) {
        case Kind::read_only: return "read-only memory";
        case Kind::unmapped: return "memory without access";
        case Kind::cut_file: return "a mapping of a file that was cut";
    }
    return "";
}

// Memory that becomes what its kind names after `spoil()`.
class Spoiled {
  public:
    explicit Spoiled(Kind kind) : kind_(kind) {
        if (kind == Kind::cut_file) {
            file_.reset(::memfd_create("weft-test", MFD_CLOEXEC));
            REQUIRE(::ftruncate(file_.get(), bytes) == 0);
        }
        const int flags = file_ ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
        void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file_.get(), 0);
        REQUIRE(at != MAP_FAILED);
        memory_ = {static_cast<std::byte*>(at), bytes};
        std::ranges::fill(memory_, std::byte{3});
    }
    Spoiled(const Spoiled&) = delete;
    ~Spoiled() { ::munmap(memory_.data(), bytes); }

    // From its second half on.
    void spoil() {
        constexpr std::size_t half = bytes / 2;
        if (kind_ == Kind::cut_file) {
            REQUIRE(::ftruncate(file_.get(), half) == 0);
        } else {
            const int access = kind_ == Kind::read_only ? PROT_READ : PROT_NONE;
            REQUIRE(::mprotect(memory_.data() + half, half, access) == 0);
        }
    }
    Bytes memory() const { return memory_; }

  private:
    Kind kind_;
    base::UniqueFd file_;
    Bytes memory_;
};

}  // namespace

CONFORMANCE("inaccessible memory fails its own transfer and nothing else") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    if (!rig.caps().rma_private) {
        return note_capability(rig.wire.scheme, "no private memory, so none that goes");
    }
    if (!rig.caps().rma_survives) {
        return note_capability(rig.wire.scheme, "memory of the other side must stay as it is");
    }
    NaPair pair(rig);
    ExposedMemory good(rig, pair.b, bytes, Access::read_write);
    Buffer local = rig.allocate(bytes);
    for (const Kind kind : {Kind::read_only, Kind::unmapped, Kind::cut_file}) {
        for (const RmaKind direction : {RmaKind::put, RmaKind::get}) {
            for (const bool of_owner : {true, false}) {
                // Read-only memory may be read.
                if (kind == Kind::read_only && (direction == RmaKind::get) == of_owner) continue;
                INFO(name_of(kind) << (of_owner ? " of the owner" : " of the initiator")
                                   << (direction == RmaKind::put ? ", put" : ", get"));
                Spoiled spoiled(kind);
                ExposedMemory region(rig, pair.b, spoiled.memory(), Access::read_write);
                spoiled.spoil();
                const auto item = [&](std::size_t offset, std::size_t size) {
                    const Bytes here =
                        (of_owner ? local.bytes() : spoiled.memory()).subspan(offset, size);
                    const ExposedMemory& there = of_owner ? region : good;
                    return direction == RmaKind::put ? there.put(pair.ab, offset, here)
                                                     : there.get(pair.ab, offset, here);
                };
                constexpr std::size_t half = bytes / 2;
                // One byte, a few, across the boundary, and all inaccessible.
                for (const auto& [offset, size] :
                     {std::pair{half, std::size_t{1}}, std::pair{half, std::size_t{3000}},
                      std::pair{std::size_t{0}, bytes}, std::pair{half, half}}) {
                    INFO(size << " bytes at " << offset);
                    CHECK(run(rig, pair.a, item(offset, size)) == Code::failed_precondition);
                    CHECK(pair.a->error().find("can't be") != std::string::npos);
                    // Transfers beside it and after it succeed.
                    REQUIRE(run(rig, pair.a, good.put(pair.ab, 8, local.bytes().first(100))) ==
                            Code::ok);
                    REQUIRE(run(rig, pair.a, item(0, half)) == Code::ok);
                    REQUIRE(rig.pump_until([&] { return pair.a.send(pair.ab, 64); }));
                    pair.a->flush();
                }
                region.close();
            }
        }
    }
    REQUIRE(rig.pump_until([&] { return pair.b.at(pair.ba).received == pair.a.at(pair.ab).sent; }));
    CHECK(pair.a.downs.empty());
    CHECK(pair.b.downs.empty());
}

CONFORMANCE("transfers move the right bytes beside one with inaccessible memory") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    if (!rig.caps().rma_private || !rig.caps().rma_survives) return;
    NaPair pair(rig);
    Spoiled spoiled(Kind::unmapped);
    ExposedMemory bad(rig, pair.b, spoiled.memory(), Access::read_write);
    ExposedMemory good(rig, pair.b, bytes, Access::read_write);
    spoiled.spoil();
    Buffer from = rig.allocate(bytes), to = rig.allocate(bytes);
    fill_random(from.bytes(), rig.random);
    constexpr std::size_t piece = bytes / 4;
    std::vector<std::uint64_t> rights, wrongs;
    for (std::size_t i = 0; i < 4; ++i) {
        const auto post = [&](RmaItem item) {
            std::uint64_t cookie = 0;
            REQUIRE(rig.pump_until([&] { return (cookie = pair.a.post(item)) != 0; }));
            return cookie;
        };
        const Bytes here = from.bytes().subspan(i * piece, piece);
        wrongs.push_back(post(bad.put(pair.ab, bytes / 2, here)));
        rights.push_back(post(good.put(pair.ab, i * piece, here)));
        wrongs.push_back(post(bad.get(pair.ab, bytes / 2, to.bytes().subspan(0, piece))));
    }
    const auto all_done = [&] { return pair.a.rma_under_way.empty(); };
    REQUIRE(rig.pump_until(all_done));
    for (const std::uint64_t cookie : rights) CHECK(pair.a.rma_done.at(cookie) == Code::ok);
    for (const std::uint64_t cookie : wrongs) {
        CHECK(pair.a.rma_done.at(cookie) == Code::failed_precondition);
    }
    CHECK(std::ranges::equal(good.bytes(), from.bytes()));
    REQUIRE(run(rig, pair.a, good.get(pair.ab, 0, to.bytes())) == Code::ok);
    CHECK(std::ranges::equal(to.bytes(), from.bytes()));
    CHECK(pair.a.downs.empty());
}
