#include "simulation/health.h"

#include <algorithm>

namespace weft::scenarios {

void Health::end_all(TimePoint now) {
    for (auto& places : fault_sites_) {
        for (auto& [pair, place] : places) {
            if (place.active > 0) place.ended = now;
            place.active = 0;
        }
    }
}

TimePoint Health::sound_since(Harm harm, const std::string& one, const std::string& other) const {
    TimePoint since = TimePoint::min();
    const Pair pairs[] = {{"", ""}, {one, ""}, {other, ""}, {one, other}, {other, one}};
    for (auto kind = static_cast<std::size_t>(harm); kind <= static_cast<std::size_t>(Harm::breaks);
         ++kind) {
        for (const Pair& pair : pairs) {
            const auto found = fault_sites_[kind].find(pair);
            if (found == fault_sites_[kind].end()) continue;
            since = std::max(since, found->second.active > 0 ? never : found->second.ended);
        }
    }
    return since;
}

TimePoint Health::quiet_since(Harm harm, const std::string& from, const std::string& to) const {
    const TimePoint since = sound_since(harm, from, to);
    return since == TimePoint::min() ? since : saturating_add(since, echo);
}

const Health::Use* Health::use_of(const std::string& from, unsigned leg,
                                  const std::string& to) const {
    const auto found = uses_.find({{from, to}, leg});
    return found == uses_.end() ? nullptr : &found->second;
}

void Health::answered(const Waiting& call, TimePoint now) {
    const TimePoint broken = quiet_since(Harm::breaks, call.client, call.server);
    Use& use = uses_[{{call.client, call.server}, call.leg}];
    if (use.since < broken && call.submitted >= broken) use.since = call.submitted;
    use.last_reply = now;
}

bool Health::is_sound(Harm harm, const Waiting& call) const {
    if (quiet_since(harm, call.client, call.server) > call.submitted) return false;
    const TimePoint broken = quiet_since(Harm::breaks, call.client, call.server);
    if (broken == TimePoint::min()) return true;
    const Use* const use = use_of(call.client, call.leg, call.server);
    return use && use->since >= broken && use->since <= call.submitted;
}

bool Health::is_connected(const std::string& from, unsigned leg, const std::string& to) const {
    const Use* const use = use_of(from, leg, to);
    const TimePoint broken = quiet_since(Harm::breaks, from, to);
    return use && broken != never && use->last_reply >= broken && use->since >= broken;
}

bool Health::was_connected(const Waiting& call) const {
    const Use* const use = use_of(call.client, call.leg, call.server);
    return call.was_connected || (use && use->last_reply > call.submitted);
}

}  // namespace weft::scenarios
