// The table that an endpoint shares with its peers: one file, writable only by its owner, which
// every peer maps read-only. It holds whether the owner sleeps, and the exposed regions.
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

struct SharedRegionTable {
    // Odd: the owner sleeps; peers wake it through its socket, once per value. Alone in its cache
    // lines: peers read it with every message.
    alignas(128) std::atomic<std::uint32_t> sleep_count;
    // Address and value of a number in the owner's private memory (peer_memory.h). The number has a
    // page of its own, at an address derived from it, where another program hardly has a mapping.
    alignas(128) std::atomic<std::uint64_t> nonce_address;
    std::atomic<std::uint64_t> nonce_number;
    alignas(4096) RegionEntry entries[regions_max];
};

// The owner's side.
class RegionTable {
  public:
    // `number`: random; peers recognise this process's private memory by it.
    // Errors: RESOURCE_EXHAUSTED.
    static Result<RegionTable> make(std::uint64_t number);

    int file() const { return file_.get(); }

    // arena_offset: nullopt for private memory. Requires: no other generation of the region is
    // exposed. Errors: RESOURCE_EXHAUSTED.
    Status expose(const Exposure& exposure, std::optional<std::uint64_t> arena_offset);
    // Refuses every access that has not started yet.
    void revoke(std::uint32_t region) noexcept;
    // The same, if that generation of the region is exposed. Thread: any.
    void revoke(std::uint32_t region, std::uint32_t generation) noexcept;

    // A full barrier before the last check for work.
    void begin_sleep() { announce_sleep(shared().sleep_count, ++sleep_count_); }
    void end_sleep() { shared().sleep_count.store(++sleep_count_, std::memory_order_release); }

  private:
    SharedRegionTable& shared() const {
        return *reinterpret_cast<SharedRegionTable*>(mapping_.data());
    }

    base::UniqueFd file_;
    Mapping mapping_;
    Mapping nonce_;
    std::uint32_t sleep_count_ = 0;
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

    bool is_asleep() const { return (sleep_count() & 1) != 0; }
    std::uint32_t sleep_count() const { return read_sleep_count(shared().sleep_count); }

    Nonce nonce() const {
        return {shared().nonce_address.load(std::memory_order_relaxed),
                shared().nonce_number.load(std::memory_order_relaxed)};
    }

    // The target if the access is allowed; else `why` is the reason.
    // Requires: the connection's `accessing` word names the region, stored by an exchange.
    std::optional<AccessTarget> validate(const AccessRequest& request, std::uint64_t arena_bytes,
                                         const char** why) const noexcept;

  private:
    const SharedRegionTable& shared() const {
        return *reinterpret_cast<const SharedRegionTable*>(mapping_.data());
    }

    Mapping mapping_;
};

}  // namespace weft::na::sm
