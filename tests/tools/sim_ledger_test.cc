// The judges of `weft sim`: each invariant of a call is broken once, and found broken.
#include "sim/ledger.h"

#include <algorithm>
#include <functional>

#include "sim/health.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::tool;

namespace {

constexpr TimePoint start(1s);

// One call in a world where nothing is wrong.
struct Case {
    Verdict verdict;
    Ledger ledger{verdict};
    std::uint64_t number = 0;
    Scene scene{start + 1ms, TimePoint::min(), never, true, true};

    explicit Case(Work work = Work::add) {
        Deed deed;
        deed.work = work;
        deed.client = "client";
        deed.server = "server";
        deed.submitted = start;
        deed.deadline = start + 1s;
        number = ledger.begin(deed);
        ledger.at(number).is_submitting = false;
    }
    void execute() { ledger.executes(number, "server", start + 100us, start + 1s); }
    void answer(const Status& status = {}) { ledger.answers(number, status, start + 200us); }
    void complete(const Status& status) { ledger.completes(number, status, true, scene); }
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
         [](Case& c) { c.scene.now = start + 1011ms, c.serve(); }},
        {Rule::completes_in_time, Work::add,
         [](Case& c) { c.scene.now = start + 1011ms, c.ledger.is_open(c.number, c.scene); }},
        {Rule::completes_after_death, Work::add,
         [](Case& c) {
             c.ledger.at(c.number).deadline = never;
             c.scene.now = start + 3100ms;
             c.scene.apart_since = start;
             c.complete(failed(Code::unavailable));
         }},
        {Rule::cancel_completes, Work::add,
         [](Case& c) {
             c.ledger.at(c.number).cancelled = start;
             c.scene.now = start + 11ms;
             c.complete(failed(Code::cancelled));
         }},
        {Rule::reply_is_own, Work::add,
         [](Case& c) {
             c.execute(), c.answer(), c.ledger.completes(c.number, ok(), false, c.scene);
         }},
        {Rule::effect_fits_code, Work::add,
         [](Case& c) { c.execute(), c.answer(), c.complete(Status().with_effect(Effect::none)); }},
        {Rule::stage_fits_effect, Work::add,
         [](Case& c) { c.complete(failed(Code::unavailable, Effect::unknown, Stage::resolving)); }},
        {Rule::code_is_possible, Work::add,
         [](Case& c) { c.complete(failed(Code::unimplemented)); }},
        {Rule::deadline_is_over, Work::add,
         [](Case& c) { c.complete(failed(Code::deadline_exceeded)); }},
        {Rule::cancel_was_asked, Work::add, [](Case& c) { c.complete(failed(Code::cancelled)); }},
        {Rule::answer_arrives, Work::add, [](Case& c) { c.complete(failed(Code::unavailable)); }},
        {Rule::answer_is_prompt, Work::add, [](Case& c) { c.scene.now += 60ms, c.serve(); }},
        {Rule::answer_is_prompt, Work::add,
         [](Case& c) {
             c.scene.now = start + 1s;
             c.complete(failed(Code::deadline_exceeded));
         }},
        {Rule::failure_is_answer, Work::failing,
         [](Case& c) {
             c.execute(), c.answer(failed(Code::aborted, Effect::applied));
             c.complete(failed(Code::not_found, Effect::applied, Stage::executing));
         }},
        {Rule::failure_is_answer, Work::refused,
         [](Case& c) {
             c.execute(), c.answer(failed(Code::aborted, Effect::none));
             c.complete(failed(Code::aborted, Effect::applied, Stage::executing));
         }},
        {Rule::reply_has_cause, Work::add, [](Case& c) { c.execute(), c.complete(ok()); }},
        {Rule::full_is_told_at_once, Work::add,
         [](Case& c) {
             c.scene.now = start + 2ms;
             c.complete(failed(Code::resource_exhausted, Effect::none, Stage::queued));
         }},
        {Rule::failure_names_peer, Work::add,
         [](Case& c) { c.complete(fail(Code::unavailable, "nobody").with_stage(Stage::sent)); }},
        {Rule::executes_once, Work::add, [](Case& c) { c.execute(), c.execute(); }},
        {Rule::executes_wanted, Work::add,
         [](Case& c) { c.ledger.executes(7, "server", start, start + 1s); }},
        {Rule::executes_here, Work::add,
         [](Case& c) { c.ledger.executes(c.number, "another", start, start + 1s); }},
        {Rule::starts_in_time, Work::add,
         [](Case& c) { c.ledger.executes(c.number, "server", start + 1s, start + 1s); }},
        {Rule::deadline_is_carried, Work::add,
         [](Case& c) { c.ledger.executes(c.number, "server", start + 1ms, start + 2s); }},
        {Rule::deadline_is_carried, Work::add,
         [](Case& c) { c.ledger.executes(c.number, "server", start + 1ms, start + 500ms); }},
        {Rule::cancel_reaches_handler, Work::later,
         [](Case& c) {
             c.execute();
             c.ledger.hears_of_cancel(c.number, c.scene),
                 c.ledger.hears_of_cancel(c.number, c.scene);
         }},
        {Rule::cancel_has_cause, Work::later,
         [](Case& c) { c.execute(), c.ledger.hears_of_cancel(c.number, c.scene); }},
        {Rule::cancel_arrives, Work::later,
         [](Case& c) { c.execute(), c.ledger.has_given_up(c.number, true); }},
        {Rule::ok_was_executed, Work::add, [](Case& c) { c.complete(ok()), c.ledger.close(); }},
        {Rule::none_was_not_executed, Work::add,
         [](Case& c) {
             c.execute(), c.complete(failed(Code::unavailable, Effect::none)), c.ledger.close();
         }},
        {Rule::applied_was_executed, Work::add,
         [](Case& c) { c.complete(failed(Code::unavailable, Effect::applied)), c.ledger.close(); }},
        {Rule::ok_was_not_cancelled, Work::later,
         [](Case& c) {
             c.execute(), c.ledger.hears_of_cancel(c.number, c.scene), c.answer();
             c.complete(ok()), c.ledger.close();
         }},
        {Rule::all_complete, Work::add, [](Case& c) { c.ledger.close(); }},
        {Rule::outcomes_balance, Work::add, [](Case& c) { c.ledger.close(); }},
    };
    return all;
}

std::uint64_t broken(const Verdict& verdict, Rule rule) {
    return verdict.tallies()[static_cast<std::size_t>(rule)].broken;
}

}  // namespace

TEST_CASE("weft sim: what goes as it should breaks no rule, and is counted") {
    for (const Work work : {Work::add, Work::read, Work::later, Work::large}) {
        Case good(work);
        good.serve();
        good.ledger.close();
        CHECK(good.verdict.broken().empty());
        CHECK(good.verdict.tallies()[static_cast<std::size_t>(Rule::answer_arrives)].judged == 1);
        CHECK(good.ledger.open() == 0);
    }
}

TEST_CASE("weft sim: each rule of a call is found broken when it is") {
    for (const Breach& breach : breaches()) {
        CAPTURE(name_of(breach.rule));
        Case bad(breach.work);
        int witnessed = 0;
        bad.verdict.on_first_break([&] { ++witnessed; });
        breach.commit(bad);
        CHECK(broken(bad.verdict, breach.rule) > 0);
        CHECK(witnessed == 1);
        const std::string begin = std::string(name_of(breach.rule)) + ": ";
        const auto& told = bad.verdict.broken();
        CHECK(std::any_of(told.begin(), told.end(),
                          [&](const std::string& one) { return one.starts_with(begin); }));
    }
}

TEST_CASE("weft sim: a call of a handler ends with the handler's call") {
    for (const Duration later : {9ms, 12ms}) {
        Case outer(Work::nested);
        outer.execute();
        outer.ledger.at(outer.number).cancelled = start;
        outer.ledger.hears_of_cancel(outer.number, outer.scene);
        Deed inner;
        inner.client = "server";
        inner.server = "another";
        inner.submitted = start;
        inner.deadline = start + 1s;
        inner.parent = outer.number;
        const std::uint64_t number = outer.ledger.begin(inner);
        outer.ledger.at(number).is_submitting = false;
        outer.scene.now = start + later;
        outer.ledger.completes(number, failed(Code::cancelled), true, outer.scene);
        CHECK(broken(outer.verdict, Rule::cancel_completes) == (later > 11ms ? 1 : 0));
        CHECK(outer.verdict.broken().size() == (later > 11ms ? 1 : 0));
    }
}

TEST_CASE("weft sim: a failure where something broke is judged by less") {
    Case excused;
    excused.scene.is_whole = excused.scene.is_calm = false;
    excused.complete(failed(Code::unavailable));
    CHECK(excused.verdict.broken().empty());
    Case slow;
    slow.scene.is_calm = false;
    slow.scene.now = start + 500ms;
    slow.serve();
    CHECK(slow.verdict.broken().empty());
}

TEST_CASE("weft sim: two hosts are sound again when a call was answered after the last fault") {
    Health health;
    const auto is_whole = [&](TimePoint since) {
        return health.is_sound(Harm::breaks, "a", "b", since);
    };
    CHECK(is_whole(start));
    health.begin(Harm::slows, "a", "b");
    CHECK(is_whole(start));
    CHECK_FALSE(health.is_sound(Harm::slows, "b", "a", start));
    health.end(Harm::slows, "a", "b", start + 1s);
    CHECK_FALSE(health.is_sound(Harm::slows, "a", "b", start + 1100ms));
    CHECK(health.is_sound(Harm::slows, "a", "b", start + 2s));

    health.begin(Harm::breaks, "b");
    health.begin(Harm::breaks, "b");
    CHECK_FALSE(is_whole(start + 3s));
    health.end(Harm::breaks, "b", start + 3s);
    CHECK_FALSE(is_whole(start + 4s));  // There was another.
    health.end(Harm::breaks, "b", start + 4s);
    CHECK_FALSE(is_whole(start + 5s));  // A connection may be gone, and nobody knows.
    health.answered("a", "b", start + 4100ms);
    CHECK_FALSE(is_whole(start + 5s));  // What was begun so soon proves nothing.
    health.answered("a", "b", start + 5s);
    CHECK(is_whole(start + 5s));
    CHECK_FALSE(is_whole(start + 4500ms));
    CHECK(health.is_sound(Harm::breaks, "a", "c", start));
}
