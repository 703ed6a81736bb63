#include "na/sm/endpoint.h"
#include "na/sm/sm.h"

namespace weft::na {
namespace {

class SmProvider final : public Provider {
  public:
    std::string_view scheme() const override { return "sm"; }

    Diagnosis probe() override {
        Result<std::string> directory = sm::names_directory();
        if (!directory) return {false, std::string(directory.status().text())};
        base::UniqueFd rings;
        Result<sm::Segment> segment = sm::Segment::make(&rings);
        if (!segment) return {false, std::string(segment.status().text())};
        return {true, "names in " + *directory};
    }

    Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                           TimePoint now) override {
        return sm::SmEndpoint::open(arenas_, listen, std::move(parts), now);
    }

    Result<std::shared_ptr<Door>> open_door(const Address& listen, DoorParts parts,
                                            TimePoint) override {
        Result<std::shared_ptr<sm::SmDoor>> door = sm::SmDoor::open(listen, std::move(parts));
        if (!door) return std::move(door).status();
        return std::shared_ptr<Door>(*std::move(door));
    }

  private:
    const std::shared_ptr<sm::ArenaViews> arenas_ = std::make_shared<sm::ArenaViews>();
};

}  // namespace

std::unique_ptr<Provider> make_sm_provider() { return std::make_unique<SmProvider>(); }

}  // namespace weft::na
