#include "simulation/bulk_ledger.h"

#include <algorithm>
#include <cstring>

#include "simulation/times.h"

namespace weft::scenarios {

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

std::string BulkLedger::describe(const TransferRecord& record) {
    const auto ms = [](TimePoint at) { return std::to_string(at.time_since_epoch() / 1ms); };
    return std::string(record.is_forged ? "forged " : "") + (record.is_put ? "put " : "get ") +
           std::to_string(record.number) + " by " + record.client + ", words " +
           std::to_string(record.first) + " to " + std::to_string(record.first + record.words) +
           " of " + describe(*record.region) + ", submitted at " + ms(record.submitted) +
           " ms, deadline " + ms(record.deadline) + " ms" +
           (record.is_complete ? ": " + record.status.to_string() : "");
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

TransferRecord& BulkLedger::begin(TransferRecord record) {
    record.number = transfers_.size();
    for (std::uint64_t i = 0; i < record.words; ++i) {
        store(record.local.bytes(), i, record.is_put ? word_of(record.number, i) : untouched);
    }
    if (record.is_put && !record.is_forged) {
        record.region->next_free = record.first + record.words;
        record.region->written.push_back({record.number, record.first, record.words});
    }
    transfers_.push_back(std::make_unique<TransferRecord>(std::move(record)));
    return *transfers_.back();
}

// ---- regions -----------------------------------------------------------------------------------

void BulkLedger::fenced(Exposed& exposed, TimePoint now, TimePoint running_since) {
    exposed.fenced = now;
    trace_.mix(exposed.number);
    trace_.mix(static_cast<std::uint64_t>(now.time_since_epoch().count()));
    validate_memory(exposed);
    for (const Written& one : exposed.written) validate_put(exposed, one);
    results_.hold(now - std::max(exposed.closed, running_since) <= fence_max, Rule::fence_completes,
                  [&] { return describe(exposed); });
    for (std::uint64_t i = 0; i < region_words; ++i) store(exposed.memory.bytes(), i, poison);
}

// Only puts change the memory, each in its own words.
void BulkLedger::validate_memory(const Exposed& exposed) {
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
    results_.hold(odd == 0, Rule::moves_nothing_else, [&] {
        return describe(exposed) + ": " + std::to_string(odd) + " words were written by no put";
    });
}

void BulkLedger::validate_put(const Exposed& exposed, const Written& written) {
    TransferRecord& put = *transfers_[written.put];
    std::uint64_t there = 0;
    for (std::uint64_t i = 0; i < written.words; ++i) {
        there += load(exposed.memory.bytes(), written.first + i) == word_of(written.put, i);
    }
    put.has_written = there > 0;
    if (!put.is_complete) return;  // Checked at its completion.
    const auto seen = [&] { return describe(put) + ", " + std::to_string(there) + " are there"; };
    if (put.status.ok()) results_.hold(there == written.words, Rule::put_stays, seen);
    if (put.status.effect() == Effect::none) {
        results_.hold(there == 0, Rule::no_effect_no_bytes, seen);
    }
}

void BulkLedger::validate_region(const Exposed& exposed) {
    results_.hold(exposed.fenced != never, Rule::fence_completes,
                  [&] { return describe(exposed); });
    if (exposed.fenced == never) return;
    std::uint64_t late = 0;
    for (std::uint64_t i = 0; i < region_words; ++i) {
        late += load(exposed.memory.bytes(), i) != poison;
    }
    results_.hold(late == 0, Rule::nothing_after_fence, [&] {
        return describe(exposed) + ": " + std::to_string(late) + " words were written later";
    });
}

// ---- transfers ---------------------------------------------------------------------------------

void BulkLedger::on_complete(TransferRecord& record, const Status& status,
                             const Conditions& conditions, bool owner_lives) {
    const auto seen = [&] { return describe(record); };
    results_.hold(!record.is_complete, Rule::completes_once, seen);
    // Without memory for a record the transfer fails inside its submission.
    const bool has_record = status.code() != Code::resource_exhausted || !status.peer().empty();
    results_.hold(!record.is_submitting || !has_record, Rule::completes_later, seen);
    record.is_complete = true;
    record.status = status;
    trace_.mix(record.number << 8 | static_cast<std::uint64_t>(status.code()));
    trace_.mix(static_cast<std::uint64_t>(conditions.now.time_since_epoch().count()));
    validate_times(results_,
                   {record.submitted, record.deadline, record.cancelled, conditions.now,
                    conditions.running_since, conditions.unreachable_since},
                   seen);
    validate_status(record, conditions, owner_lives);
    validate_arrival(record, conditions, owner_lives);
    if (status.ok()) validate_bytes(record);
    if (!record.is_put) validate_local(record);
}

void BulkLedger::validate_status(const TransferRecord& record, const Conditions& conditions,
                                 bool owner_lives) {
    const auto seen = [&] { return describe(record); };
    const Exposed& region = *record.region;
    const Status& status = record.status;
    if (record.is_forged) results_.hold(!status.ok(), Rule::forged_is_denied, seen);
    if (status.ok()) {
        results_.hold(status.effect() == Effect::applied, Rule::effect_fits_code, seen);
        return;
    }
    if (!record.is_forged) {
        results_.hold(
            status.code() == Code::permission_denied || is_possible(status.code(), conditions),
            Rule::code_is_possible, seen);
    }
    const bool was_sent = status.stage() == Stage::sent || status.stage() == Stage::executing;
    if (!was_sent) results_.hold(status.effect() == Effect::none, Rule::stage_fits_effect, seen);
    if (record.is_put && region.fenced != never && status.effect() == Effect::none) {
        results_.hold(!record.has_written, Rule::no_effect_no_bytes, seen);
    }
    switch (status.code()) {
        case Code::deadline_exceeded:
            results_.hold(conditions.now >= record.deadline, Rule::deadline_is_over, seen);
            break;
        case Code::cancelled:
            results_.hold(record.cancelled != never, Rule::cancel_was_requested, seen);
            break;
        case Code::resource_exhausted:
            // A transfer that waits for its connection fails when that is up.
            results_.hold(
                status.effect() == Effect::none &&
                    (was_sent || status.stage() == Stage::resolving ||
                     conditions.now - std::max(record.submitted, conditions.running_since) <= 1ms),
                Rule::overload_fails_at_once, seen);
            break;
        case Code::permission_denied:
            // Over a connection to an earlier life, which is not known to be lost yet, a reference
            // of this life is invalid.
            if (record.is_forged || !conditions.is_whole) break;
            results_.hold(region.closed != never || !owner_lives, Rule::denied_has_cause, seen);
            break;
        default: break;
    }
}

// Without a fault there are two ways to fail: PERMISSION_DENIED, and the deadline.
void BulkLedger::validate_arrival(const TransferRecord& record, const Conditions& conditions,
                                  bool owner_lives) {
    if (!conditions.is_whole || record.cancelled != never || record.is_forged) return;
    if (record.region->closed != never || !owner_lives) return;
    const auto seen = [&] { return describe(record); };
    results_.hold(record.status.ok() || conditions.now >= record.deadline, Rule::reply_arrives,
                  seen);
    if (!conditions.is_calm) return;
    const TimePoint limit = record.status.ok() ? conditions.now : record.deadline;
    results_.hold(limit - record.submitted <= prompt_max, Rule::reply_is_prompt, seen);
}

void BulkLedger::validate_bytes(const TransferRecord& record) {
    const Exposed& region = *record.region;
    const auto seen = [&] { return describe(record); };
    results_.hold(region.fenced > record.submitted, Rule::nothing_after_fence, seen);
    // The owner may have overwritten the bytes of a put, or its host may be down.
    if (record.is_put && region.fenced != never) return;
    const Bytes memory = record.is_put ? region.memory.bytes() : record.local.bytes();
    std::uint64_t missing = 0;
    for (std::uint64_t i = 0; i < record.words; ++i) {
        const std::uint64_t value = load(memory, record.is_put ? record.first + i : i);
        missing += value != (record.is_put ? word_of(record.number, i)
                                           : word_of(of_region | region.number, record.first + i));
    }
    results_.hold(missing == 0, Rule::moves_all_or_fails, [&] {
        return describe(record) + ": " + std::to_string(missing) + " words differ";
    });
}

// With any status, a get delivers only the owner's words.
void BulkLedger::validate_local(const TransferRecord& record) {
    std::uint64_t odd = 0;
    for (std::uint64_t i = 0; i < record.words; ++i) {
        const std::uint64_t value = load(record.local.bytes(), i);
        const bool is_brought =
            !record.is_forged &&
            value == word_of(of_region | record.region->number, record.first + i);
        odd += value != untouched && !is_brought;
    }
    results_.hold(odd == 0, Rule::moves_nothing_else, [&] {
        return describe(record) + " delivered " + std::to_string(odd) + " words";
    });
}

void BulkLedger::close() {
    std::uint64_t ended = 0;
    for (const auto& record : transfers_) {
        ended += record->is_complete || record->client_died;
        results_.hold(record->is_complete || record->client_died, Rule::all_complete,
                      [&] { return describe(*record); });
    }
    results_.hold(ended == transfers_.size(), Rule::outcomes_balance, [&] {
        return std::to_string(transfers_.size()) + " were begun, " + std::to_string(ended) +
               " ended";
    });
}

}  // namespace weft::scenarios
