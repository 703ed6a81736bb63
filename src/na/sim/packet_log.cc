#include "na/sim/packet_log.h"

#include <algorithm>

namespace weft::na::sim {

static const char* name_of(Kind kind) {
    switch (kind) {
        case Kind::connect: return "connect";
        case Kind::accept: return "accept";
        case Kind::message: return "message";
        case Kind::down: return "end of a connection";
        case Kind::rma_put: return "piece of a put";
        case Kind::rma_request: return "request of a get";
        case Kind::rma_data: return "piece of a get";
        case Kind::rma_reply: return "end of a transfer";
        case Kind::repeated: return "repeated packet";
        default: return "local";  // Never logged.
    }
}

std::string PacketLog::describe(const Event& event, const Links& links) {
    std::string text =
        links.name_of(event.from) + " -> " + links.name_of(event.to) + ": " + name_of(event.kind);
    if (event.sequence != 0) text += " #" + std::to_string(event.sequence);
    if (event.bytes != 0) text += ", " + std::to_string(event.bytes) + " bytes";
    if (event.code != Code::ok) text += ", " + std::string(weft::name_of(event.code));
    if (event.delivery == Delivery::is_resent) text += ", was lost";
    if (event.delivery == Delivery::arrives_damaged) text += ", damaged";
    if (event.delivery == Delivery::hangs_up) text += ", lost with its connection";
    return text;
}

std::vector<std::pair<TimePoint, std::string>> PacketLog::last(const Links& links,
                                                               std::size_t most) const {
    const std::uint64_t count =
        std::min({noted_, std::uint64_t{events_.size()}, std::uint64_t{most}});
    std::vector<std::pair<TimePoint, std::string>> lines;
    for (std::uint64_t i = noted_ - count; i < noted_; ++i) {
        const Event& event = events_[i % events_.size()];
        lines.emplace_back(event.at, describe(event, links));
    }
    return lines;
}

}  // namespace weft::na::sim
