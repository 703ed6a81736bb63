// The invariant checks of `weft sim`: each invariant of regions and transfers is violated once, and
// reported.
#include "simulation/bulk_ledger.h"

#include <functional>
#include <memory>
#include <vector>

#include "support/catch.h"

using namespace weft;
using namespace weft::scenarios;

namespace {

constexpr TimePoint start(1s);
constexpr std::uint64_t words = 16;

Buffer memory_of(std::size_t count) {
    const auto owner = std::make_shared<std::vector<std::uint64_t>>(count);
    const Bytes bytes(reinterpret_cast<std::byte*>(owner->data()), count * sizeof(std::uint64_t));
    return Buffer::adopt(bytes, [owner] {});
}

// A region and one transfer of it, in a world without faults.
struct Case {
    RuleResults results;
    BulkLedger ledger{results};
    Exposed* region = nullptr;
    TransferRecord* record = nullptr;
    Conditions conditions{start + 1ms, TimePoint::min(), never, true, true};

    explicit Case(bool is_put, bool is_forged = false) {
        Exposed exposed;
        exposed.owner = "owner";
        exposed.is_read = !is_put;
        exposed.memory = memory_of(region_words);
        region = &ledger.expose(std::move(exposed));
        TransferRecord begun;
        begun.is_put = is_put;
        begun.is_forged = is_forged;
        begun.client = "client";
        begun.region = region;
        begun.words = words;
        begun.local = memory_of(words);
        begun.submitted = start;
        begun.deadline = start + 1s;
        record = &ledger.begin(std::move(begun));
        record->is_submitting = false;
    }
    // The transport's copy.
    void move(std::uint64_t count = words) {
        const Bytes& from = record->is_put ? record->local.bytes() : region->memory.bytes();
        const Bytes& to = record->is_put ? region->memory.bytes() : record->local.bytes();
        for (std::uint64_t i = 0; i < count; ++i) store(to, i, load(from, i));
    }
    void complete(const Status& status) { ledger.on_complete(*record, status, conditions, true); }
    void fence() { ledger.fenced(*region, start + 2ms, TimePoint::min()); }
    void end() { ledger.validate_region(*region), ledger.close(); }
};

Status ok() { return Status().with_effect(Effect::applied); }
Status failed(Code code, Effect effect = Effect::unknown, Stage stage = Stage::sent) {
    return fail(code, "so").with_effect(effect).with_stage(stage).with_peer("sim://owner");
}

struct Breach {
    Rule rule;
    bool is_put;
    std::function<void(Case&)> commit;
};

const std::vector<Breach>& breaches() {
    static const std::vector<Breach> all{
        {Rule::completes_once, true, [](Case& c) { c.move(), c.complete(ok()), c.complete(ok()); }},
        {Rule::completes_later, true,
         [](Case& c) { c.record->is_submitting = true, c.complete(ok()); }},
        {Rule::completes_in_time, false,
         [](Case& c) {
             c.conditions.now = start + 1011ms, c.complete(failed(Code::deadline_exceeded));
         }},
        {Rule::effect_fits_code, false, [](Case& c) { c.move(), c.complete(Status()); }},
        {Rule::stage_fits_effect, true,
         [](Case& c) { c.complete(failed(Code::unavailable, Effect::unknown, Stage::resolving)); }},
        {Rule::code_is_possible, true, [](Case& c) { c.complete(failed(Code::internal)); }},
        {Rule::deadline_is_over, true,
         [](Case& c) { c.complete(failed(Code::deadline_exceeded)); }},
        {Rule::cancel_was_requested, true, [](Case& c) { c.complete(failed(Code::cancelled)); }},
        {Rule::reply_arrives, true, [](Case& c) { c.complete(failed(Code::unavailable)); }},
        {Rule::reply_is_prompt, false,
         [](Case& c) { c.conditions.now = start + 60ms, c.move(), c.complete(ok()); }},
        {Rule::overload_fails_at_once, true,
         [](Case& c) { c.complete(failed(Code::resource_exhausted)); }},
        {Rule::moves_all_or_fails, true, [](Case& c) { c.move(words - 1), c.complete(ok()); }},
        {Rule::moves_all_or_fails, false, [](Case& c) { c.move(words - 1), c.complete(ok()); }},
        {Rule::moves_nothing_else, true,
         [](Case& c) { store(c.region->memory.bytes(), words, 1), c.fence(); }},
        {Rule::moves_nothing_else, false,
         [](Case& c) {
             store(c.record->local.bytes(), 0, 1);
             c.complete(failed(Code::unavailable));
         }},
        {Rule::put_stays, true,
         [](Case& c) {
             c.move(), c.complete(ok());
             store(c.region->memory.bytes(), 3, untouched);
             c.fence();
         }},
        {Rule::no_effect_no_bytes, true,
         [](Case& c) {
             c.move(1), c.complete(failed(Code::unavailable, Effect::none)), c.fence();
         }},
        {Rule::no_effect_no_bytes, true,
         [](Case& c) {
             c.move(1), c.fence(), c.complete(failed(Code::unavailable, Effect::none));
         }},
        {Rule::nothing_after_fence, true,
         [](Case& c) { c.fence(), store(c.region->memory.bytes(), 0, 1), c.end(); }},
        {Rule::nothing_after_fence, false,
         [](Case& c) {
             c.fence();
             c.record->submitted = start + 3ms;
             c.complete(ok());
         }},
        {Rule::fence_completes, true, [](Case& c) { c.end(); }},
        {Rule::fence_completes, true,
         [](Case& c) {
             c.region->closed = start;
             c.ledger.fenced(*c.region, start + 15s, TimePoint::min());
         }},
        {Rule::denied_has_cause, true,
         [](Case& c) { c.complete(failed(Code::permission_denied, Effect::none)); }},
        {Rule::all_complete, true, [](Case& c) { c.end(); }},
        {Rule::outcomes_balance, true, [](Case& c) { c.end(); }},
    };
    return all;
}

std::uint64_t broken(const RuleResults& results, Rule rule) {
    return results.tallies()[static_cast<std::size_t>(rule)].broken;
}

}  // namespace

TEST_CASE("weft sim: transfers that move the right bytes break no rule") {
    for (const bool is_put : {true, false}) {
        Case good(is_put);
        good.move();
        good.complete(ok());
        good.region->closed = start;
        good.fence();
        good.end();
        CHECK(good.results.broken().empty());
    }
}

TEST_CASE("weft sim: a violation of each rule of a transfer is detected") {
    for (const Breach& breach : breaches()) {
        CAPTURE(name_of(breach.rule), breach.is_put);
        Case bad(breach.is_put);
        breach.commit(bad);
        CHECK(broken(bad.results, breach.rule) > 0);
    }
}

TEST_CASE("weft sim: a forged reference that moves bytes is detected") {
    Case said(true, true);
    said.complete(ok());
    CHECK(broken(said.results, Rule::forged_is_denied) == 1);
    Case record(true, true);
    record.move();
    record.complete(failed(Code::permission_denied, Effect::none));
    record.fence();
    CHECK(broken(record.results, Rule::moves_nothing_else) == 1);
    Case got(false, true);
    got.move();
    got.complete(failed(Code::permission_denied, Effect::none));
    CHECK(broken(got.results, Rule::moves_nothing_else) == 1);
}
