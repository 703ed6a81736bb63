// The askers that a part answers: those that wait now, and those expected to ask again.
#include <algorithm>

#include "base/mutant.h"
#include "coll/part.h"

namespace weft::coll {

void Part::asked(std::uint32_t question, std::uint32_t asker, TimePoint answer_by) {
    // Expected askers at or below this position asked on its behalf: none of them is expected now.
    std::erase_if(askers_, [&](const Asker& one) { return !one.question && one.asker >= asker; });
    askers_.push_back({question, asker, answer_by});
}

// An asker that has been told so far asks for the rest; when it has died, another rank asks in its
// place. Each expected asker has one entry, for as long as it is expected.
void Part::asker_left(std::uint32_t question, TimePoint now) {
    const Step step(*this, now);
    const auto left = std::find_if(askers_.begin(), askers_.end(),
                                   [&](const Asker& one) { return one.question == question; });
    if (left == askers_.end()) return;
    const std::uint32_t asker = left->asker;
    askers_.erase(left);
    if (asker == nobody) return;
    std::erase_if(askers_, [&](const Asker& one) {
        return !one.question && (one.asker == asker || one.until <= now);
    });
    const bool is_kept = base::is_mutated(base::Mutant::orphan_kept);
    const auto is_expected = [](const Asker& one) { return one.question == 0; };
    if (std::count_if(askers_.begin(), askers_.end(), is_expected) >= expected_most) {
        // The first of them: the others are expected for longer.
        askers_.erase(std::find_if(askers_.begin(), askers_.end(), is_expected));
    }
    askers_.push_back({0, asker, is_kept ? never : now + orphan_lasts});
}

void Part::desert(std::uint32_t asker) {
    std::erase_if(askers_, [&](const Asker& one) { return !one.question && one.asker >= asker; });
    for (Asker& one : askers_) {
        if (one.asker >= asker) one.asker = nobody;
    }
}

void Part::answer_impatient(TimePoint now) {
    std::vector<std::uint32_t> told;
    for (const Asker& one : askers_) {
        if (one.question && one.until <= now) told.push_back(one.question);
    }
    if (told.empty()) return;
    const Answer::Kind kind = waits_for_silent() ? Answer::Kind::silent : Answer::Kind::partial;
    for (const std::uint32_t question : told) {
        asker_left(question, now);
        port_.reply_to(*this, question, kind);
    }
}

std::size_t Part::askers() const {
    return static_cast<std::size_t>(std::count_if(
        askers_.begin(), askers_.end(), [](const Asker& one) { return one.question != 0; }));
}

// From when on no asker waits for it.
TimePoint Part::orphaned_at() const {
    if (role_.is_origin || askers() > 0) return never;
    TimePoint at{};
    for (const Asker& one : askers_) at = std::max(at, one.until);
    return at;
}

}  // namespace weft::coll
