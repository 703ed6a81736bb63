#include "na/sm/region_table.h"

#include <sys/mman.h>

#include <cstring>

#include "base/assert.h"

namespace weft::na::sm {

static constexpr std::uint64_t live_state(std::uint32_t generation) {
    return std::uint64_t{generation} << 1 | 1;
}

// A page that holds only `number`, at an address derived from it: in a part of the address space
// that loaders, heaps and sanitizers leave free. On a machine without such addresses the kernel
// chooses.
static Result<Mapping> map_nonce(std::uint64_t number) {
    constexpr std::uint64_t lowest = std::uint64_t{1} << 45, span = lowest, page_bytes = 4096;
    const std::uint64_t wanted = lowest + number % span / page_bytes * page_bytes;
    void* at = ::mmap(reinterpret_cast<void*>(wanted), page_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return fail(Code::resource_exhausted, errno_text("weft-sm-regions: mapping a page"));
    }
    std::memcpy(at, &number, sizeof number);
    return Mapping(static_cast<std::byte*>(at), page_bytes);
}

Result<RegionTable> RegionTable::make(std::uint64_t number) {
    RegionTable table;
    Result<base::UniqueFd> file = make_memory_file("weft-sm-regions", sizeof(SharedRegionTable));
    if (!file) return std::move(file).status();
    Result<Mapping> mapping = map_file(file->get(), sizeof(SharedRegionTable), Writable::yes);
    if (!mapping) return std::move(mapping).status();
    // After the owner's writable mapping, which is the last one possible.
    if (Status status = seal(*file, FutureWrite::forbidden); !status.ok()) return status;
    table.file_ = std::move(*file);
    table.mapping_ = std::move(*mapping);
    Result<Mapping> nonce = map_nonce(number);
    if (!nonce) return std::move(nonce).status();
    table.nonce_ = std::move(*nonce);
    SharedRegionTable& shared = table.shared();
    shared.nonce_address.store(reinterpret_cast<std::uintptr_t>(table.nonce_.data()),
                               std::memory_order_relaxed);
    shared.nonce_number.store(number, std::memory_order_relaxed);
    return table;
}

Status RegionTable::expose(const Exposure& exposure, std::optional<std::uint64_t> arena_offset) {
    if (exposure.region >= regions_max) {
        return fail(Code::resource_exhausted, "sm: region " + std::to_string(exposure.region) +
                                                  " is beyond the table of " +
                                                  std::to_string(regions_max));
    }
    RegionEntry& entry = shared().entries[exposure.region];
    const std::uint64_t before = entry.state.load(std::memory_order_acquire);
    if (before == live_state(exposure.generation)) return {};
    WEFT_ASSERT((before & 1) == 0);
    entry.key.store(exposure.key, std::memory_order_relaxed);
    const auto address = reinterpret_cast<std::uintptr_t>(exposure.memory.data());
    entry.at.store(arena_offset.value_or(address), std::memory_order_relaxed);
    entry.is_private.store(arena_offset ? 0 : 1, std::memory_order_relaxed);
    entry.bytes.store(exposure.memory.size(), std::memory_order_relaxed);
    entry.access.store(static_cast<std::uint32_t>(exposure.access), std::memory_order_relaxed);
    entry.state.store(live_state(exposure.generation), std::memory_order_release);
    return {};
}

void RegionTable::revoke(std::uint32_t region) noexcept {
    if (region >= regions_max) return;
    std::atomic<std::uint64_t>& state = shared().entries[region].state;
    revoke_region(state, state.load(std::memory_order_relaxed) & ~std::uint64_t{1});
}

void RegionTable::revoke(std::uint32_t region, std::uint32_t generation) noexcept {
    if (region >= regions_max) return;
    const std::uint64_t live = live_state(generation);
    revoke_generation(shared().entries[region].state, live, live & ~std::uint64_t{1});
}

Result<RegionView> RegionView::attach(int file) {
    Result<std::size_t> bytes = validate_memory_file(
        file, "region table", sizeof(SharedRegionTable), sizeof(SharedRegionTable));
    if (!bytes) return std::move(bytes).status();
    Result<Mapping> mapping = map_file(file, sizeof(SharedRegionTable), Writable::no);
    if (!mapping) return std::move(mapping).status();
    RegionView view;
    view.mapping_ = std::move(*mapping);
    return view;
}

std::optional<AccessTarget> RegionView::validate(const AccessRequest& request,
                                                 std::uint64_t arena_bytes,
                                                 const char** why) const noexcept {
    const auto refuse = [why](const char* text) {
        *why = text;
        return std::nullopt;
    };
    if (request.region >= regions_max) return refuse("the owner has no such region");
    const RegionEntry& entry = shared().entries[request.region];
    const std::uint64_t state = read_state(entry.state);
    if (state >> 1 != request.generation) return refuse("the reference is stale");
    if ((state & 1) == 0) return refuse("the region was revoked");
    // The `accessing` word is set and the entry is not revoked: the owner does not reuse the entry
    // until this access ends.
    if (entry.key.load(std::memory_order_relaxed) != request.key)
        return refuse("the reference has a wrong key");
    const auto access = static_cast<Access>(entry.access.load(std::memory_order_relaxed) & 3);
    if (!allows(access, request.access)) {
        return refuse(request.access == Access::write ? "the region may not be written"
                                                      : "the region may not be read");
    }
    const std::uint64_t bytes = entry.bytes.load(std::memory_order_relaxed);
    if (request.offset > bytes || request.bytes > bytes - request.offset) {
        return refuse("the range ends beyond the region");
    }
    const std::uint64_t at = entry.at.load(std::memory_order_relaxed);
    const bool is_private = entry.is_private.load(std::memory_order_relaxed) != 0;
    const std::uint64_t end = is_private ? ~std::uint64_t{0} : arena_bytes;
    if (at > end || bytes > end - at) return refuse("the region lies outside the peer's arena");
    return AccessTarget{is_private, at + request.offset};
}

}  // namespace weft::na::sm
