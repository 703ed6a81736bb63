#include "na/verbs/registration_cache.h"

#include <algorithm>
#include <new>

#include "base/assert.h"

namespace weft::na::verbs {

static constexpr std::size_t block_bytes = Arena::hold_bytes;
static constexpr std::uint64_t blocks_most = 2;

RegistrationCache::~RegistrationCache() { shrink(0); }

Registration* RegistrationCache::take(Bytes memory) noexcept {
    const auto at = bytes_max_ != 0 ? arena_.offset_of(memory) : std::nullopt;
    if (!at || memory.empty()) return nullptr;
    const std::uint64_t first = *at / block_bytes;
    const std::uint64_t blocks = (*at + memory.size() - 1) / block_bytes - first + 1;
    if (blocks > blocks_most) return nullptr;
    const std::uint64_t key = first * blocks_most + blocks - 1;
    Registration* found = nullptr;
    if (const auto known = all_.find(key); known != all_.end()) {
        found = known->second.get();
    } else {
        try {
            // The last block of an arena may be short.
            const std::uint64_t offset = first * block_bytes;
            found = add(key, offset,
                        {memory.data() - (*at - offset),
                         std::min(blocks * block_bytes, arena_.size() - offset)});
        } catch (const std::bad_alloc&) {
        }
    }
    if (found && found->uses++ == 0 && found->is_linked()) found->unlink();
    return found;
}

void RegistrationCache::give_back(Registration& registration) noexcept {
    WEFT_ASSERT(registration.uses != 0);
    if (--registration.uses != 0) return;
    idle_.push_back(registration);
    shrink(bytes_max_);
}

static std::size_t held(std::size_t bytes) {
    return (bytes + block_bytes - 1) / block_bytes * block_bytes;
}

// Throws std::bad_alloc; then nothing has changed.
Registration* RegistrationCache::add(std::uint64_t key, std::uint64_t offset, Bytes memory) {
    WEFT_ASSERT(!memory.empty() && !all_.contains(key));
    shrink(bytes_max_ - std::min(memory.size(), bytes_max_));
    auto made = std::make_unique<Registration>();
    made->key = key;
    made->offset = offset;
    made->bytes = memory.size();
    const auto place = all_.try_emplace(key).first;
    // The arena holds the pages before the device pins them.
    if (arena_.hold(offset, held(memory.size()))) {
        auto region = device_.register_memory(memory, IBV_ACCESS_LOCAL_WRITE);
        if (!region && !idle_.empty()) {
            shrink(0);  // Idle registrations may use up the limit of locked memory.
            region = device_.register_memory(memory, IBV_ACCESS_LOCAL_WRITE);
        }
        if (region) {
            made->region = *std::move(region);
            bytes_ += memory.size();
            place->second = std::move(made);
            return place->second.get();
        }
        arena_.release(offset, held(memory.size()));
    }
    all_.erase(place);
    return nullptr;
}

void RegistrationCache::remove(Registration& registration) noexcept {
    WEFT_ASSERT(registration.uses == 0 && bytes_ >= registration.bytes);
    registration.unlink();
    bytes_ -= registration.bytes;
    const std::uint64_t offset = registration.offset;
    const std::size_t bytes = held(registration.bytes);
    all_.erase(registration.key);  // The registration ends before the pages may be released.
    arena_.release(offset, bytes);
}

void RegistrationCache::shrink(std::size_t to) noexcept {
    while (bytes_ > to) {
        Registration* oldest = idle_.front();
        if (!oldest) return;
        remove(*oldest);
    }
}

void RegistrationCache::abandon() noexcept {
    while (idle_.pop_front()) continue;
    for (auto& [key, registration] : all_) (void)registration->region.release();
    all_.clear();
    bytes_ = 0;
}

}  // namespace weft::na::verbs
