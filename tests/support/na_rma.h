// An exposed region of a node, with a shadow copy of its expected contents.
#pragma once

#include <algorithm>
#include <vector>

#include "support/na_rig.h"

namespace weft::test {

// False: noted, nothing to test.
inline bool has_rma(NaRig& rig) {
    const na::Caps caps = rig.open({.listens = false})->caps();
    if (!caps.rma) note_capability(rig.wire.scheme, "no put and get");
    return caps.rma;
}

class ExposedMemory {
  public:
    // Filled at random. Memory of the arena, or private.
    ExposedMemory(NaRig& rig, NaNode& owner, std::size_t bytes, na::Access access,
                  bool arena = true)
        : rig_(rig), owner_(owner) {
        if (arena) {
            buffer_ = rig.allocate(bytes);
            memory_ = buffer_.bytes();
        } else {
            private_.resize(bytes);
            memory_ = private_;
        }
        fill_random(memory_, rig.random);
        begin(access);
    }
    // Memory of the test, with its contents.
    ExposedMemory(NaRig& rig, NaNode& owner, Bytes memory, na::Access access)
        : rig_(rig), owner_(owner), memory_(memory) {
        begin(access);
    }

    // Exposes the same memory under a new generation and key.
    void expose() {
        ++exposure_.generation;
        exposure_.key = rig_.random.next() | 1;
        const Result<na::FabricKey> fabric = owner_->expose(exposure_);
        INFO(fabric.status().to_string());
        REQUIRE(fabric);
        fabric_ = *fabric;
    }

    na::RmaItem put(na::PeerId peer, std::uint64_t offset, Bytes local) const {
        return item(na::RmaKind::put, peer, offset, local);
    }
    na::RmaItem get(na::PeerId peer, std::uint64_t offset, Bytes local) const {
        return item(na::RmaKind::get, peer, offset, local);
    }

    Bytes bytes() const { return memory_; }
    std::uint32_t index() const { return exposure_.region; }
    bool is_untouched() const { return std::ranges::equal(memory_, shadow_); }

    // Revokes and waits for the fence.
    void close() {
        owner_.fence(exposure_.region);
        REQUIRE(rig_.pump_until([&] { return owner_.fenced.contains(exposure_.region); }));
    }

  private:
    void begin(na::Access access) {
        shadow_.assign(memory_.begin(), memory_.end());
        static std::uint32_t next_index = 0;
        exposure_.region = next_index++ % na::regions_max;
        exposure_.memory = memory_;
        exposure_.access = access;
        expose();
    }

    na::RmaItem item(na::RmaKind kind, na::PeerId peer, std::uint64_t offset, Bytes local) const {
        na::RmaItem item;
        item.kind = kind;
        item.peer = peer;
        item.region = exposure_.region;
        item.generation = exposure_.generation;
        item.key = exposure_.key;
        item.fabric = fabric_;
        item.offset = offset;
        item.local = local;
        return item;
    }

    NaRig& rig_;
    NaNode& owner_;
    Buffer buffer_;
    std::vector<std::byte> private_;
    Bytes memory_;
    std::vector<std::byte> shadow_;
    na::Exposure exposure_;
    na::FabricKey fabric_;
};

// Posts one transfer and waits for its end.
inline Code run(NaRig& rig, NaNode& node, const na::RmaItem& item) {
    std::uint64_t cookie = 0;
    REQUIRE(rig.pump_until([&] {
        if (cookie == 0) cookie = node.post(item);
        return cookie != 0 && node.rma_done.contains(cookie);
    }));
    return node.rma_done.at(cookie);
}

}  // namespace weft::test
