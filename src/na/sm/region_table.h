// What an endpoint lets its peers see and do: one file, writable only by its owner, which every
// peer maps read-only. It holds the owner's doze word (does it sleep?) and the table of exposed
// regions.
//
// The fence: an initiator names the region in its connection's `accessing` word by an exchange,
// judges the entry after that, copies a slice and clears the word. The owner marks the entry
// revoked by an exchange and then looks at the words: either the initiator sees the mark, or the
// owner sees the word and waits (dekker.h). A slice is bounded, so is the wait, unless the
// initiator is stopped in mid-copy.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "na/memory_file.h"
#include "na/provider.h"
#include "na/sm/dekker.h"
#include "na/sm/peer_memory.h"

namespace weft::na::sm {

inline constexpr std::uint32_t no_region = 0;  // In an `accessing` word; else region + 1.

struct RegionEntry {
    // generation << 1 | live. Zero: never used.
    alignas(64) std::atomic<std::uint64_t> state;
    std::atomic<std::uint64_t> key;
    std::atomic<std::uint64_t> at;  // Offset in the owner's arena, or an address of its own.
    std::atomic<std::uint64_t> bytes;
    std::atomic<std::uint32_t> access;
    std::atomic<std::uint32_t> is_private;
};
static_assert(sizeof(RegionEntry) == 64);

struct RegionPage {
    // Odd: asleep, wake it by its socket, once per value. Alone in its lines: peers read it with
    // every message.
    alignas(128) std::atomic<std::uint32_t> doze;
    // Where a number lies in the owner's private memory, and which (peer_memory.h): alone on a page
    // at an address of chance, where no other program has anything.
    alignas(128) std::atomic<std::uint64_t> proof_address;
    std::atomic<std::uint64_t> proof_number;
    alignas(4096) RegionEntry entries[regions_max];
};

// The owner's side.
class RegionTable {
  public:
    // `number`: what proves that our private memory was reached. Errors: RESOURCE_EXHAUSTED.
    static Result<RegionTable> make(std::uint64_t number);

    int file() const { return file_.get(); }

    // arena_offset: nullopt for private memory.
    Status expose(const Exposure& exposure, std::optional<std::uint64_t> arena_offset);
    // No access that is not under way yet will be let in.
    void revoke(std::uint32_t region);

    // A full barrier in front of the last look for work.
    void doze() { announce_doze(page().doze, ++dozes_); }
    void wake() { page().doze.store(++dozes_, std::memory_order_release); }

  private:
    RegionPage& page() const { return *reinterpret_cast<RegionPage*>(mapping_.data()); }

    base::UniqueFd file_;
    Mapping mapping_;
    Mapping proof_;
    std::uint32_t dozes_ = 0;
};

// What an initiator wants to touch.
struct AccessWish {
    std::uint32_t region = 0;
    std::uint32_t generation = 0;
    std::uint64_t key = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    Access access = Access::none;
};

// Where it lies: an offset in the owner's arena, or an address in its private memory.
struct AccessPlace {
    bool is_private = false;
    std::uint64_t at = 0;
};

// A peer's table, seen from here.
class RegionView {
  public:
    // Errors: DATA_LOSS, RESOURCE_EXHAUSTED.
    static Result<RegionView> attach(int file);

    bool is_dozing() const { return (doze() & 1) != 0; }
    std::uint32_t doze() const { return look_at_doze(page().doze); }

    Proof proof() const {
        return {page().proof_address.load(std::memory_order_relaxed),
                page().proof_number.load(std::memory_order_relaxed)};
    }

    // The place when the wish is granted. `why` says why not.
    // Requires: the connection's `accessing` word names the region, stored by an exchange.
    std::optional<AccessPlace> judge(const AccessWish& wish, std::uint64_t arena_bytes,
                                     const char** why) const noexcept;

  private:
    const RegionPage& page() const { return *reinterpret_cast<const RegionPage*>(mapping_.data()); }

    Mapping mapping_;
};

}  // namespace weft::na::sm
