// All parts of bulk: the owner's table of regions, the initiator's transfers, and the bodies of
// large calls.
#pragma once

#include "bulk/regions.h"
#include "bulk/rendezvous.h"
#include "bulk/transfers.h"

namespace weft::bulk {

class Bulk final : public core::RmaSink {
  public:
    Bulk(core::Context& context, na::Incarnation owner, std::shared_ptr<na::Arena> shared,
         std::size_t body_bytes_max, RegionFamily* family = nullptr,
         std::shared_ptr<core::Budget> body_budget = nullptr)
        : arena(std::move(shared)),
          regions(std::make_shared<Regions>(context, owner, *arena, family)),
          transfers(context),
          rendezvous(context, *regions, transfers, arena, body_bytes_max, std::move(body_budget)) {
        context.set_rma_sink(*this);
    }
    void on_rma_done(std::uint64_t cookie, Code code, const std::string& error) override {
        transfers.on_rma_done(cookie, code, error);
    }
    void on_region_fenced(std::uint32_t region, core::EndpointSlot& endpoint) override {
        regions->on_region_fenced(region, endpoint);
    }

    const std::shared_ptr<na::Arena> arena;
    std::shared_ptr<Regions> regions;
    Transfers transfers;
    Rendezvous rendezvous;
};

}  // namespace weft::bulk
