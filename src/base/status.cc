#include <weft/status.h>

#include "base/text.h"

namespace weft {

std::string_view name_of(Code code) {
    switch (code) {
        case Code::ok: return "OK";
        case Code::cancelled: return "CANCELLED";
        case Code::unknown: return "UNKNOWN";
        case Code::invalid_argument: return "INVALID_ARGUMENT";
        case Code::deadline_exceeded: return "DEADLINE_EXCEEDED";
        case Code::not_found: return "NOT_FOUND";
        case Code::already_exists: return "ALREADY_EXISTS";
        case Code::permission_denied: return "PERMISSION_DENIED";
        case Code::resource_exhausted: return "RESOURCE_EXHAUSTED";
        case Code::failed_precondition: return "FAILED_PRECONDITION";
        case Code::aborted: return "ABORTED";
        case Code::out_of_range: return "OUT_OF_RANGE";
        case Code::unimplemented: return "UNIMPLEMENTED";
        case Code::internal: return "INTERNAL";
        case Code::unavailable: return "UNAVAILABLE";
        case Code::data_loss: return "DATA_LOSS";
        case Code::unauthenticated: return "UNAUTHENTICATED";
    }
    return "INVALID_CODE";
}

std::string_view name_of(Effect effect) {
    switch (effect) {
        case Effect::none: return "none";
        case Effect::applied: return "applied";
        case Effect::unknown: return "unknown";
    }
    return "invalid";
}

std::string_view name_of(Stage stage) {
    switch (stage) {
        case Stage::none: return "none";
        case Stage::queued: return "queued";
        case Stage::resolving: return "resolving";
        case Stage::sent: return "sent";
        case Stage::executing: return "executing";
    }
    return "invalid";
}

void Status::make_unknown() {
    const std::string number = std::to_string(static_cast<unsigned>(code_));
    code_ = Code::unknown;
    detail().text.insert(0, "code " + number + " is none of weft::Code: ");
}

Status& Status::operator=(const Status& other) {
    if (this == &other) return *this;
    code_ = other.code_;
    effect_ = other.effect_;
    stage_ = other.stage_;
    is_rejection_ = other.is_rejection_;
    detail_ = other.detail_ ? std::make_unique<Detail>(*other.detail_) : nullptr;
    return *this;
}

std::string Status::to_string() const {
    std::string line(name_of(code_));
    if (!text().empty()) line.append(": ").append(base::printable(text()));
    if (stage_ == Stage::none && peer().empty()) return line;
    line.append(" (effect ").append(name_of(effect_));
    if (stage_ != Stage::none) line.append(", stage ").append(name_of(stage_));
    if (!peer().empty()) line.append(", peer ").append(peer());
    return line.append(")");
}

Status&& Status::in(std::string_view context) && {
    if (!ok()) detail().text.insert(0, std::string(context) + ": ");
    return std::move(*this);
}

}  // namespace weft
