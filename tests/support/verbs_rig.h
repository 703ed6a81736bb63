// Endpoints of the verbs transport over the fake device. At the end no object of theirs may be
// left, and the device may have no complaints.
#pragma once

#include <string>

#include "support/fake_verbs.h"
#include "support/na_rig.h"
#include "support/verbs_raw_peer.h"

namespace weft::test {

class VerbsRig {
  public:
    explicit VerbsRig(FakeLimits limits = {}, std::uint64_t seed = 1)
        : fake(limits), rig_(std::in_place, &wires::Verbs::make, seed) {}
    ~VerbsRig() {
        rig_.reset();
        CHECK(fake.counts() == FakeCounts{});
        for (const std::string& complaint : fake.complaints()) FAIL_CHECK(complaint);
    }

    NaRig* operator->() { return &*rig_; }
    NaRig& operator*() { return *rig_; }

    // A frame arrives in each direction.
    bool is_alive(NaPair& pair) {
        const std::uint64_t to_b = pair.a.at(pair.ab).sent, to_a = pair.b.at(pair.ba).sent;
        if (!pair.a.send(pair.ab, 64) || !pair.b.send(pair.ba, 64)) return false;
        return rig_->pump_until([&] {
            return pair.b.at(pair.ba).received > to_b && pair.a.at(pair.ab).received > to_a;
        });
    }
    // The peer that is down, and why.
    Down wait_for_down(NaNode& node, std::size_t count = 1) {
        REQUIRE(rig_->pump_until([&] { return node.downs.size() >= count; }));
        rig_->run_until_idle();
        REQUIRE(node.downs.size() == count);
        return node.downs.back();
    }

    FakeVerbs fake;

  private:
    std::optional<NaRig> rig_;
};

inline bool says(const std::string& text, const std::string& part) {
    INFO(text);
    const bool is_there = text.find(part) != std::string::npos;
    CHECK(is_there);
    return is_there;
}

}  // namespace weft::test
