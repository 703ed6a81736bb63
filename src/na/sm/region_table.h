// The table that an endpoint shows to its peers: one file, writable only by its owner, which every
// peer maps read-only. It holds the owner's doze word (whether it sleeps) and the exposed regions.
//
// The fence: an initiator stores the region in its connection's `accessing` word by an exchange,
// then validates the entry, copies a slice and clears the word. The owner marks the entry revoked
// by an exchange and then loads the words: either the initiator sees the mark, or the owner sees
// the word and waits (dekker.h). A slice is bounded, so is the wait, unless the initiator is
// stopped in mid-copy.
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
    std::atomic<std::uint64_t> at;  // Offset in the owner's arena, or address in its private
                                    // memory.
    std::atomic<std::uint64_t> bytes;
    std::atomic<std::uint32_t> access;
    std::atomic<std::uint32_t> is_private;
};
static_assert(sizeof(RegionEntry) == 64);

struct RegionPage {
    // Odd: the owner sleeps; peers wake it through its socket, once per value. Alone in its lines:
    // peers read it with every message.
    alignas(128) std::atomic<std::uint32_t> doze;
    // The address and the value of a number in the owner's private memory (peer_memory.h): alone on
    // a page at a random address, where no other program has a mapping.
    alignas(128) std::atomic<std::uint64_t> proof_address;
    std::atomic<std::uint64_t> proof_number;
    alignas(4096) RegionEntry entries[regions_max];
};

// The owner's side.
class RegionTable {
  public:
    // `number`: proves that a peer reached this process's private memory. Errors:
    // RESOURCE_EXHAUSTED.
    static Result<RegionTable> make(std::uint64_t number);

    int file() const { return file_.get(); }

    // arena_offset: nullopt for private memory.
    Status expose(const Exposure& exposure, std::optional<std::uint64_t> arena_offset);
    // Refuses every access that has not started yet.
    void revoke(std::uint32_t region);

    // A full barrier before the last check for work.
    void doze() { announce_doze(page().doze, ++dozes_); }
    void wake() { page().doze.store(++dozes_, std::memory_order_release); }

  private:
    RegionPage& page() const { return *reinterpret_cast<RegionPage*>(mapping_.data()); }

    base::UniqueFd file_;
    Mapping mapping_;
    Mapping proof_;
    std::uint32_t dozes_ = 0;
};

// The access that an initiator requests.
struct AccessRequest {
    std::uint32_t region = 0;
    std::uint32_t generation = 0;
    std::uint64_t key = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    Access access = Access::none;
};

// The target: an offset in the owner's arena, or an address in its private memory.
struct AccessTarget {
    bool is_private = false;
    std::uint64_t at = 0;
};

// A peer's table, mapped read-only.
class RegionView {
  public:
    // Errors: DATA_LOSS, RESOURCE_EXHAUSTED.
    static Result<RegionView> attach(int file);

    bool is_dozing() const { return (doze() & 1) != 0; }
    std::uint32_t doze() const { return read_doze(page().doze); }

    Proof proof() const {
        return {page().proof_address.load(std::memory_order_relaxed),
                page().proof_number.load(std::memory_order_relaxed)};
    }

    // The target if the access is allowed; else `why` is the reason.
    // Requires: the connection's `accessing` word names the region, stored by an exchange.
    std::optional<AccessTarget> validate(const AccessRequest& request, std::uint64_t arena_bytes,
                                         const char** why) const noexcept;

  private:
    const RegionPage& page() const { return *reinterpret_cast<const RegionPage*>(mapping_.data()); }

    Mapping mapping_;
};

}  // namespace weft::na::sm
