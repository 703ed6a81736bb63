// The channels of a runtime to one server: a leg for each of its own contexts, each with a
// connection of its own, and a channel to each context of the server. All are made when they are
// first used.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <weft/function.h>

#include "na/address.h"
#include "na/hello.h"
#include "rpc/channel_impl.h"

namespace weft::rpc {

// A context of a runtime, with its layers.
struct ContextParts {
    core::Context& context;
    Client& client;
    bulk::Bulk& bulk;
};

// What the channels to one server share. Constant, but for `contexts`.
struct ServerFacts {
    std::vector<na::Address> addresses;
    unsigned spread = 1;                 // ConnectOptions::spread; at least 1.
    std::span<const ContextParts> here;  // The contexts of this runtime, which outlive it.
    std::shared_ptr<std::atomic<std::uint16_t>> contexts =
        std::make_shared<std::atomic<std::uint16_t>>(std::uint16_t{0});  // LegSource::contexts().
    // Runs work on the thread of the channel that connect() returned, and waits. False: exit() has
    // abandoned the runtime, and the work never runs.
    std::function<bool(Function<void()>)> at_home;
};

class ChannelLegs final : public LegSource {
  public:
    // `wanted`: the context of the server that all of these are for, plus 1; 0: any. `origin`: of
    // the channel that connect() returned, which owns this one's channel; nullptr: this is that.
    // `home` owns this.
    ChannelLegs(ChannelImpl& home, std::shared_ptr<const ServerFacts> facts, std::uint16_t wanted,
                ChannelLegs* origin = nullptr)
        : home_(home),
          facts_(std::move(facts)),
          wanted_(wanted),
          origin_(origin),
          legs_(std::make_unique<Slot[]>(facts_->here.size())) {}

    Result<ChannelImpl*> leg(std::uint16_t context, const ChannelImpl& home) override;
    ChannelImpl* made(std::uint16_t context) const override {
        return context < facts_->here.size() ? legs_[context].channel.get() : nullptr;
    }
    ChannelImpl& pinned(std::uint16_t context) override;
    std::uint16_t contexts() const override {
        return facts_->contexts->load(std::memory_order_relaxed);
    }

    // A peer of these channels, in a context of this runtime.
    static Result<core::PeerRef> add_peer(core::Context& context, const ServerFacts& facts,
                                          core::WantedContext wanted);

  private:
    // Alone in its lines: written by its context, while others read theirs.
    struct alignas(128) Slot {
        std::shared_ptr<ChannelImpl> channel;
    };
    using Pins = std::array<std::atomic<ChannelImpl*>, na::contexts_max>;
    std::shared_ptr<ChannelImpl> make_pinned(std::uint16_t context);

    ChannelImpl& home_;
    const std::shared_ptr<const ServerFacts> facts_;
    const std::uint16_t wanted_;
    ChannelLegs* const origin_;
    const std::unique_ptr<Slot[]> legs_;  // By contexts of this runtime.

    // The channels to contexts of the server, which are never replaced.
    std::atomic<Pins*> pins_{nullptr};
    std::mutex mutex_;  // Guards the rest.
    std::unique_ptr<Pins> owned_pins_;
    std::vector<std::shared_ptr<ChannelImpl>> owned_;
};

}  // namespace weft::rpc
