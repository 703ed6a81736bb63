// A name of sm, which the endpoints of a runtime's contexts share.
#pragma once

#include "na/door.h"
#include "na/sm/names.h"

namespace weft::na::sm {

class SmDoor final : public Door {
  public:
    // Errors: as Provider::open().
    static Result<std::shared_ptr<SmDoor>> open(const Address& at, DoorParts parts) {
        if (at.scheme != "sm" || at.name.empty()) {
            return fail(Code::invalid_argument,
                        "sm can't listen at " + at.uri() + "; use sm://name");
        }
        Result<Listening> listening = Listening::open(at.name);
        if (!listening) return std::move(listening).status();
        return std::make_shared<SmDoor>(*std::move(listening), std::move(parts));
    }
    SmDoor(Listening listening, DoorParts parts)
        : Door(std::move(parts)), listening_(std::move(listening)) {}

    const std::string& name() const { return listening_.name(); }
    int socket() const { return listening_.socket(); }
    // In a forked child: leaves the name to the parent.
    void abandon() { listening_.abandon(); }

  private:
    Listening listening_;
};

}  // namespace weft::na::sm
