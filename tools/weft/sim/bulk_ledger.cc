#include "sim/bulk_ledger.h"

#include <algorithm>
#include <cstring>

#include "sim/times.h"

namespace weft::tool {

static constexpr Duration fence_max = 14s;

std::uint64_t load(Bytes memory, std::uint64_t word) {
    std::uint64_t value;
    std::memcpy(&value, memory.data() + word * sizeof value, sizeof value);
    return value;
}

void store(Bytes memory, std::uint64_t word, std::uint64_t value) {
    std::memcpy(memory.data() + word * sizeof value, &value, sizeof value);
}

std::string BulkLedger::describe(const Exposed& exposed) {
    return "region " + std::to_string(exposed.number) + " of " + exposed.owner;
}

std::string BulkLedger::describe(const Moved& moved) {
    const auto ms = [](TimePoint at) { return std::to_string(at.time_since_epoch() / 1ms); };
    return std::string(moved.is_forged ? "forged " : "") + (moved.is_put ? "put " : "get ") +
           std::to_string(moved.number) + " by " + moved.client + ", words " +
           std::to_string(moved.first) + " to " + std::to_string(moved.first + moved.words) +
           " of " + describe(*moved.region) + ", submitted at " + ms(moved.submitted) +
           " ms, deadline " + ms(moved.deadline) + " ms" +
           (moved.is_complete ? ": " + moved.status.to_string() : "");
}

Exposed& BulkLedger::expose(Exposed exposed) {
    exposed.number = exposed_.size();
    for (std::uint64_t i = 0; i < region_words; ++i) {
        store(exposed.memory.bytes(), i,
              exposed.is_read ? word_of(of_region | exposed.number, i) : untouched);
    }
    exposed_.push_back(std::make_unique<Exposed>(std::move(exposed)));
    return *exposed_.back();
}

Moved& BulkLedger::begin(Moved moved) {
    moved.number = moved_.size();
    for (std::uint64_t i = 0; i < moved.words; ++i) {
        store(moved.local.bytes(), i, moved.is_put ? word_of(moved.number, i) : untouched);
    }
    if (moved.is_put && !moved.is_forged) {
        moved.region->next_free = moved.first + moved.words;
        moved.region->written.push_back({moved.number, moved.first, moved.words});
    }
    moved_.push_back(std::make_unique<Moved>(std::move(moved)));
    return *moved_.back();
}

// ---- regions -----------------------------------------------------------------------------------

void BulkLedger::fenced(Exposed& exposed, TimePoint now, TimePoint awake_since) {
    exposed.fenced = now;
    trace_.mix(exposed.number);
    trace_.mix(static_cast<std::uint64_t>(now.time_since_epoch().count()));
    judge_memory(exposed);
    for (const Written& one : exposed.written) judge_put(exposed, one);
    verdict_.hold(now - std::max(exposed.closed, awake_since) <= fence_max, Rule::fence_comes,
                  [&] { return describe(exposed); });
    for (std::uint64_t i = 0; i < region_words; ++i) store(exposed.memory.bytes(), i, poison);
}

// Nothing but what puts were asked to write there.
void BulkLedger::judge_memory(const Exposed& exposed) {
    std::vector<std::uint64_t> put_of(region_words, ~std::uint64_t{0});
    std::vector<std::uint64_t> first_of(region_words);
    for (const Written& one : exposed.written) {
        for (std::uint64_t i = 0; i < one.words; ++i) {
            put_of[one.first + i] = one.put;
            first_of[one.first + i] = one.first;
        }
    }
    std::uint64_t odd = 0;
    for (std::uint64_t i = 0; i < region_words; ++i) {
        const std::uint64_t value = load(exposed.memory.bytes(), i);
        const std::uint64_t before =
            exposed.is_read ? word_of(of_region | exposed.number, i) : untouched;
        const bool is_put =
            put_of[i] != ~std::uint64_t{0} && value == word_of(put_of[i], i - first_of[i]);
        odd += value != before && !is_put;
    }
    verdict_.hold(odd == 0, Rule::moves_nothing_else, [&] {
        return describe(exposed) + ": " + std::to_string(odd) + " words are nobody's";
    });
}

void BulkLedger::judge_put(const Exposed& exposed, const Written& written) {
    Moved& put = *moved_[written.put];
    std::uint64_t there = 0;
    for (std::uint64_t i = 0; i < written.words; ++i) {
        there += load(exposed.memory.bytes(), written.first + i) == word_of(written.put, i);
    }
    put.has_written = there > 0;
    if (!put.is_complete) return;  // Judged when it is.
    const auto seen = [&] { return describe(put) + ", " + std::to_string(there) + " are there"; };
    if (put.status.ok()) verdict_.hold(there == written.words, Rule::put_stays, seen);
    if (put.status.effect() == Effect::none) {
        verdict_.hold(there == 0, Rule::no_effect_no_bytes, seen);
    }
}

void BulkLedger::judge_region(const Exposed& exposed) {
    verdict_.hold(exposed.fenced != never, Rule::fence_comes, [&] { return describe(exposed); });
    if (exposed.fenced == never) return;
    std::uint64_t late = 0;
    for (std::uint64_t i = 0; i < region_words; ++i) {
        late += load(exposed.memory.bytes(), i) != poison;
    }
    verdict_.hold(late == 0, Rule::nothing_after_fence, [&] {
        return describe(exposed) + ": " + std::to_string(late) + " words were written later";
    });
}

// ---- transfers ---------------------------------------------------------------------------------

void BulkLedger::completes(Moved& moved, const Status& status, const Scene& scene,
                           bool owner_lives) {
    const auto seen = [&] { return describe(moved); };
    verdict_.hold(!moved.is_complete, Rule::completes_once, seen);
    // Without memory for a record nothing is left to wait with.
    const bool has_record = status.code() != Code::resource_exhausted || !status.peer().empty();
    verdict_.hold(!moved.is_submitting || !has_record, Rule::completes_later, seen);
    moved.is_complete = true;
    moved.status = status;
    trace_.mix(moved.number << 8 | static_cast<std::uint64_t>(status.code()));
    trace_.mix(static_cast<std::uint64_t>(scene.now.time_since_epoch().count()));
    judge_times(verdict_,
                {moved.submitted, moved.deadline, moved.cancelled, scene.now, scene.awake_since,
                 scene.apart_since},
                seen);
    judge_status(moved, scene, owner_lives);
    judge_arrival(moved, scene, owner_lives);
    if (status.ok()) judge_bytes(moved);
    if (!moved.is_put) judge_local(moved);
}

void BulkLedger::judge_status(const Moved& moved, const Scene& scene, bool owner_lives) {
    const auto seen = [&] { return describe(moved); };
    const Exposed& region = *moved.region;
    const Status& status = moved.status;
    if (moved.is_forged) verdict_.hold(!status.ok(), Rule::forged_is_denied, seen);
    if (status.ok()) {
        verdict_.hold(status.effect() == Effect::applied, Rule::effect_fits_code, seen);
        return;
    }
    if (!moved.is_forged) {
        verdict_.hold(status.code() == Code::permission_denied || is_possible(status.code(), scene),
                      Rule::code_is_possible, seen);
    }
    const bool was_sent = status.stage() == Stage::sent || status.stage() == Stage::executing;
    if (!was_sent) verdict_.hold(status.effect() == Effect::none, Rule::stage_fits_effect, seen);
    if (moved.is_put && region.fenced != never && status.effect() == Effect::none) {
        verdict_.hold(!moved.has_written, Rule::no_effect_no_bytes, seen);
    }
    switch (status.code()) {
        case Code::deadline_exceeded:
            verdict_.hold(scene.now >= moved.deadline, Rule::deadline_is_over, seen);
            break;
        case Code::cancelled:
            verdict_.hold(moved.cancelled != never, Rule::cancel_was_asked, seen);
            break;
        case Code::resource_exhausted:
            // One that waited for its connection is told when that is there.
            verdict_.hold(status.effect() == Effect::none &&
                              (was_sent || status.stage() == Stage::resolving ||
                               scene.now - std::max(moved.submitted, scene.awake_since) <= 1ms),
                          Rule::full_is_told_at_once, seen);
            break;
        case Code::permission_denied:
            // Over a connection to an earlier life, which nobody knows to be gone, a reference of
            // this one is another's.
            if (moved.is_forged || !scene.is_whole) break;
            verdict_.hold(region.closed != never || !owner_lives, Rule::denied_has_cause, seen);
            break;
        default: break;
    }
}

// Where nothing broke there are two ways to fail: to be denied, and to run out of time.
void BulkLedger::judge_arrival(const Moved& moved, const Scene& scene, bool owner_lives) {
    if (!scene.is_whole || moved.cancelled != never || moved.is_forged) return;
    if (moved.region->closed != never || !owner_lives) return;
    const auto seen = [&] { return describe(moved); };
    verdict_.hold(moved.status.ok() || scene.now >= moved.deadline, Rule::answer_arrives, seen);
    if (!scene.is_calm) return;
    const TimePoint limit = moved.status.ok() ? scene.now : moved.deadline;
    verdict_.hold(limit - moved.submitted <= prompt_max, Rule::answer_is_prompt, seen);
}

void BulkLedger::judge_bytes(const Moved& moved) {
    const Exposed& region = *moved.region;
    const auto seen = [&] { return describe(moved); };
    verdict_.hold(region.fenced > moved.submitted, Rule::nothing_after_fence, seen);
    // What was put may be overwritten by its owner already, or its host may be gone.
    if (moved.is_put && region.fenced != never) return;
    const Bytes memory = moved.is_put ? region.memory.bytes() : moved.local.bytes();
    std::uint64_t missing = 0;
    for (std::uint64_t i = 0; i < moved.words; ++i) {
        const std::uint64_t value = load(memory, moved.is_put ? moved.first + i : i);
        missing += value != (moved.is_put ? word_of(moved.number, i)
                                          : word_of(of_region | region.number, moved.first + i));
    }
    verdict_.hold(missing == 0, Rule::moves_all_or_fails, [&] {
        return describe(moved) + ": " + std::to_string(missing) + " words differ";
    });
}

// Whatever came of a get: what it brought is what the owner had there.
void BulkLedger::judge_local(const Moved& moved) {
    std::uint64_t odd = 0;
    for (std::uint64_t i = 0; i < moved.words; ++i) {
        const std::uint64_t value = load(moved.local.bytes(), i);
        const bool is_brought =
            !moved.is_forged && value == word_of(of_region | moved.region->number, moved.first + i);
        odd += value != untouched && !is_brought;
    }
    verdict_.hold(odd == 0, Rule::moves_nothing_else,
                  [&] { return describe(moved) + " brought " + std::to_string(odd) + " words"; });
}

void BulkLedger::close() {
    std::uint64_t ended = 0;
    for (const auto& moved : moved_) {
        ended += moved->is_complete || moved->client_died;
        verdict_.hold(moved->is_complete || moved->client_died, Rule::all_complete,
                      [&] { return describe(*moved); });
    }
    verdict_.hold(ended == moved_.size(), Rule::outcomes_balance, [&] {
        return std::to_string(moved_.size()) + " were begun, " + std::to_string(ended) + " ended";
    });
}

}  // namespace weft::tool
