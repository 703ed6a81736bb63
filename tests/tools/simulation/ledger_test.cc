// The invariant checks of `weft sim`: each invariant of a call is violated once, and reported.
#include "simulation/ledger.h"

#include <algorithm>
#include <functional>

#include "simulation/health.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::scenarios;

namespace {

constexpr TimePoint start(1s);

// One call in a world without faults.
struct Case {
    RuleResults results;
    Ledger ledger{results};
    std::uint64_t number = 0;
    Conditions conditions{start + 1ms, TimePoint::min(), never, true, true};

    explicit Case(Work work = Work::add) {
        CallRecord record;
        record.work = work;
        record.client = "client";
        record.server = "server";
        record.submitted = start;
        record.deadline = start + 1s;
        number = ledger.begin(record);
        ledger.at(number).is_submitting = false;
    }
    void execute() { ledger.on_execute(number, "server", 0, start + 100us, start + 1s); }
    void answer(const Status& status = {}) { ledger.on_reply(number, status, start + 200us); }
    void complete(const Status& status) { ledger.on_complete(number, status, true, conditions); }
    void serve() {
        execute();
        answer();
        complete(Status().with_effect(Effect::applied));
    }
};

Status ok() { return Status().with_effect(Effect::applied); }
Status failed(Code code, Effect effect = Effect::unknown, Stage stage = Stage::sent) {
    return fail(code, "so").with_effect(effect).with_stage(stage).with_peer("sim://server");
}

struct Breach {
    Rule rule;
    Work work;
    std::function<void(Case&)> commit;
};

const std::vector<Breach>& breaches() {
    static const std::vector<Breach> all{
        {Rule::completes_once, Work::add, [](Case& c) { c.serve(), c.complete(ok()); }},
        {Rule::completes_later, Work::add,
         [](Case& c) { c.ledger.at(c.number).is_submitting = true, c.serve(); }},
        {Rule::completes_in_time, Work::add,
         [](Case& c) { c.conditions.now = start + 1011ms, c.serve(); }},
        {Rule::completes_in_time, Work::add,
         [](Case& c) {
             c.conditions.now = start + 1011ms, c.ledger.is_open(c.number, c.conditions);
         }},
        {Rule::completes_after_death, Work::add,
         [](Case& c) {
             c.ledger.at(c.number).deadline = never;
             c.conditions.now = start + 3100ms;
             c.conditions.unreachable_since = start;
             c.complete(failed(Code::unavailable));
         }},
        {Rule::cancel_completes, Work::add,
         [](Case& c) {
             c.ledger.at(c.number).cancelled = start;
             c.conditions.now = start + 11ms;
             c.complete(failed(Code::cancelled));
         }},
        {Rule::reply_is_own, Work::add,
         [](Case& c) {
             c.execute(), c.answer(), c.ledger.on_complete(c.number, ok(), false, c.conditions);
         }},
        {Rule::effect_fits_code, Work::add,
         [](Case& c) { c.execute(), c.answer(), c.complete(Status().with_effect(Effect::none)); }},
        {Rule::stage_fits_effect, Work::add,
         [](Case& c) { c.complete(failed(Code::unavailable, Effect::unknown, Stage::resolving)); }},
        {Rule::code_is_possible, Work::add,
         [](Case& c) { c.complete(failed(Code::unimplemented)); }},
        {Rule::deadline_is_over, Work::add,
         [](Case& c) { c.complete(failed(Code::deadline_exceeded)); }},
        {Rule::cancel_was_requested, Work::add,
         [](Case& c) { c.complete(failed(Code::cancelled)); }},
        {Rule::reply_arrives, Work::add, [](Case& c) { c.complete(failed(Code::unavailable)); }},
        {Rule::reply_is_prompt, Work::add, [](Case& c) { c.conditions.now += 60ms, c.serve(); }},
        {Rule::reply_is_prompt, Work::add,
         [](Case& c) {
             c.conditions.now = start + 1s;
             c.complete(failed(Code::deadline_exceeded));
         }},
        {Rule::handler_failure_arrives, Work::failing,
         [](Case& c) {
             c.execute(), c.answer(failed(Code::aborted, Effect::applied));
             c.complete(failed(Code::not_found, Effect::applied, Stage::executing));
         }},
        {Rule::handler_failure_arrives, Work::refused,
         [](Case& c) {
             c.execute(), c.answer(failed(Code::aborted, Effect::none));
             c.complete(failed(Code::aborted, Effect::applied, Stage::executing));
         }},
        {Rule::reply_has_cause, Work::add, [](Case& c) { c.execute(), c.complete(ok()); }},
        {Rule::overload_fails_at_once, Work::add,
         [](Case& c) {
             c.conditions.now = start + 2ms;
             c.complete(failed(Code::resource_exhausted, Effect::none, Stage::queued));
         }},
        {Rule::failure_names_peer, Work::add,
         [](Case& c) { c.complete(fail(Code::unavailable, "nobody").with_stage(Stage::sent)); }},
        {Rule::executes_once, Work::add, [](Case& c) { c.execute(), c.execute(); }},
        {Rule::executes_requested, Work::add,
         [](Case& c) { c.ledger.on_execute(7, "server", 0, start, start + 1s); }},
        {Rule::executes_at_target, Work::add,
         [](Case& c) { c.ledger.on_execute(c.number, "another", 0, start, start + 1s); }},
        {Rule::starts_in_time, Work::add,
         [](Case& c) { c.ledger.on_execute(c.number, "server", 0, start + 1s, start + 1s); }},
        {Rule::deadline_is_carried, Work::add,
         [](Case& c) { c.ledger.on_execute(c.number, "server", 0, start + 1ms, start + 2s); }},
        {Rule::deadline_is_carried, Work::add,
         [](Case& c) { c.ledger.on_execute(c.number, "server", 0, start + 1ms, start + 500ms); }},
        {Rule::cancel_reaches_handler, Work::later,
         [](Case& c) {
             c.execute();
             c.ledger.on_cancel_notice(c.number, c.conditions),
                 c.ledger.on_cancel_notice(c.number, c.conditions);
         }},
        {Rule::cancel_has_cause, Work::later,
         [](Case& c) { c.execute(), c.ledger.on_cancel_notice(c.number, c.conditions); }},
        {Rule::cancel_arrives, Work::later,
         [](Case& c) { c.execute(), c.ledger.on_caller_gave_up(c.number, true); }},
        {Rule::ok_was_executed, Work::add, [](Case& c) { c.complete(ok()), c.ledger.close(); }},
        {Rule::none_was_not_executed, Work::add,
         [](Case& c) {
             c.execute(), c.complete(failed(Code::unavailable, Effect::none)), c.ledger.close();
         }},
        {Rule::applied_was_executed, Work::add,
         [](Case& c) { c.complete(failed(Code::unavailable, Effect::applied)), c.ledger.close(); }},
        {Rule::ok_was_not_cancelled, Work::later,
         [](Case& c) {
             c.execute(), c.ledger.on_cancel_notice(c.number, c.conditions), c.answer();
             c.complete(ok()), c.ledger.close();
         }},
        {Rule::all_complete, Work::add, [](Case& c) { c.ledger.close(); }},
        {Rule::outcomes_balance, Work::add, [](Case& c) { c.ledger.close(); }},
    };
    return all;
}

std::uint64_t broken(const RuleResults& results, Rule rule) {
    return results.tallies()[static_cast<std::size_t>(rule)].broken;
}

// Of calls to a context.
std::vector<Breach> pinned_breaches() {
    return {{Rule::pinned_runs_there, Work::add,
             [](Case& c) { c.ledger.at(c.number).pinned = 2, c.execute(); }},
            {Rule::pinned_runs_there, Work::add, [](Case& c) {
                 c.ledger.on_start("server", 5, start);
                 c.ledger.at(c.number).pinned = 2;
                 c.complete(failed(Code::out_of_range, Effect::none, Stage::resolving));
             }}};
}

}  // namespace

TEST_CASE("weft sim: correct calls break no rule and are counted") {
    for (const Work work : {Work::add, Work::read, Work::later, Work::large}) {
        Case good(work);
        good.serve();
        good.ledger.close();
        CHECK(good.results.broken().empty());
        CHECK(good.results.tallies()[static_cast<std::size_t>(Rule::reply_arrives)].checked == 1);
        CHECK(good.ledger.open() == 0);
    }
}

TEST_CASE("weft sim: a violation of each rule of a call is detected") {
    std::vector<Breach> all = breaches();
    for (const Breach& one : pinned_breaches()) all.push_back(one);
    for (const Breach& breach : all) {
        CAPTURE(name_of(breach.rule));
        Case bad(breach.work);
        int witnessed = 0;
        bad.results.on_first_break([&] { ++witnessed; });
        breach.commit(bad);
        CHECK(broken(bad.results, breach.rule) > 0);
        CHECK(witnessed == 1);
        const std::string begin = std::string(name_of(breach.rule)) + ": ";
        const auto& told = bad.results.broken();
        CHECK(std::any_of(told.begin(), told.end(),
                          [&](const std::string& one) { return one.starts_with(begin); }));
    }
}

TEST_CASE("weft sim: a nested call completes with its handler's call") {
    for (const Duration later : {9ms, 12ms}) {
        Case outer(Work::nested);
        outer.execute();
        outer.ledger.at(outer.number).cancelled = start;
        outer.ledger.on_cancel_notice(outer.number, outer.conditions);
        CallRecord inner;
        inner.client = "server";
        inner.server = "another";
        inner.submitted = start;
        inner.deadline = start + 1s;
        inner.parent = outer.number;
        const std::uint64_t number = outer.ledger.begin(inner);
        outer.ledger.at(number).is_submitting = false;
        outer.conditions.now = start + later;
        outer.ledger.on_complete(number, failed(Code::cancelled), true, outer.conditions);
        CHECK(broken(outer.results, Rule::cancel_completes) == (later > 11ms ? 1 : 0));
        CHECK(outer.results.broken().size() == (later > 11ms ? 1 : 0));
    }
}

TEST_CASE("weft sim: fewer rules apply to a failure under faults") {
    Case excused;
    excused.conditions.is_whole = excused.conditions.is_calm = false;
    excused.complete(failed(Code::unavailable));
    CHECK(excused.results.broken().empty());
    Case slow;
    slow.conditions.is_calm = false;
    slow.conditions.now = start + 500ms;
    slow.serve();
    CHECK(slow.results.broken().empty());
}

TEST_CASE("weft sim: a link is sound again when a call succeeds after its last fault") {
    Health health;
    const std::string a = "a", b = "b", c = "c";
    const auto call = [&](TimePoint since) { return Waiting{a, 0, b, since, false}; };
    const auto is_whole = [&](TimePoint since) {
        return health.is_sound(Harm::breaks, call(since));
    };
    CHECK(is_whole(start));
    health.begin(Harm::slows, "a", "b");
    CHECK(is_whole(start));
    CHECK_FALSE(health.is_sound(Harm::slows, {b, 0, a, start, false}));
    health.end(Harm::slows, "a", "b", start + 1s);
    CHECK_FALSE(health.is_sound(Harm::slows, call(start + 1100ms)));
    CHECK(health.is_sound(Harm::slows, call(start + 2s)));

    health.begin(Harm::breaks, "b");
    health.begin(Harm::breaks, "b");
    CHECK_FALSE(is_whole(start + 3s));
    health.end(Harm::breaks, "b", start + 3s);
    CHECK_FALSE(is_whole(start + 4s));  // A second fault is still active.
    health.end(Harm::breaks, "b", start + 4s);
    CHECK_FALSE(is_whole(start + 5s));  // A connection may be lost without notice.
    health.answered(call(start + 4100ms), start + 4200ms);
    CHECK_FALSE(is_whole(start + 5s));  // A call begun before that time proves nothing.
    health.answered(call(start + 5s), start + 5100ms);
    CHECK(is_whole(start + 5s));
    CHECK_FALSE(is_whole(start + 4500ms));
    CHECK(health.is_sound(Harm::breaks, {a, 0, c, start, false}));
}

TEST_CASE("weft sim: a leg is connected from its first reply after a fault until the next fault") {
    Health health;
    const std::string a = "a", b = "b";
    CHECK_FALSE(health.is_connected(a, 0, b));
    CHECK_FALSE(health.was_connected({a, 0, b, start, false}));
    CHECK(health.was_connected({a, 0, b, start, true}));
    health.answered({a, 0, b, start, false}, start + 1s);
    CHECK(health.is_connected(a, 0, b));
    CHECK_FALSE(health.is_connected(a, 1, b));
    // A reply to another call, later, shows the connection too, on its own leg.
    CHECK(health.was_connected({a, 0, b, start + 500ms, false}));
    CHECK_FALSE(health.was_connected({a, 0, b, start + 1s, false}));
    CHECK_FALSE(health.was_connected({a, 1, b, start + 500ms, false}));
    health.begin(Harm::breaks, "b");
    CHECK_FALSE(health.is_connected(a, 0, b));
    health.end(Harm::breaks, "b", start + 2s);
    CHECK_FALSE(health.is_connected(a, 0, b));
    health.answered({a, 0, b, start + 3s, false}, start + 4s);
    CHECK(health.is_connected(a, 0, b));
}
