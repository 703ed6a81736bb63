// Bulk, whole: the owner's table and the initiator's transfers of one context.
#pragma once

#include "bulk/regions.h"
#include "bulk/transfers.h"

namespace weft::bulk {

class Bulk final : public core::RmaSink {
  public:
    Bulk(core::Context& context, na::Incarnation owner)
        : regions(std::make_shared<Regions>(context, owner)), transfers(context) {
        context.set_rma_sink(*this);
    }
    void on_rma_done(std::uint64_t cookie, Code code, const std::string& error) override {
        transfers.on_rma_done(cookie, code, error);
    }
    void on_region_fenced(std::uint32_t region, core::EndpointSlot& endpoint) override {
        regions->on_region_fenced(region, endpoint);
    }

    std::shared_ptr<Regions> regions;
    Transfers transfers;
};

}  // namespace weft::bulk
