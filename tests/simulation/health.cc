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

void Health::answered(const std::string& from, unsigned leg, const std::string& to,
                      TimePoint submitted) {
    const TimePoint broken = quiet_since(Harm::breaks, from, to);
    TimePoint& used = used_.try_emplace({{from, to}, leg}, TimePoint::min()).first->second;
    if (used < broken && submitted >= broken) used = submitted;
}

bool Health::is_sound(Harm harm, const std::string& from, unsigned leg, const std::string& to,
                      TimePoint start) const {
    if (quiet_since(harm, from, to) > start) return false;
    const TimePoint broken = quiet_since(Harm::breaks, from, to);
    if (broken == TimePoint::min()) return true;
    const auto used = used_.find({{from, to}, leg});
    return used != used_.end() && used->second >= broken && used->second <= start;
}

}  // namespace weft::scenarios
