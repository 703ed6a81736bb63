// Ranks that play their parts in collectives over messages of virtual time: no RPC, no threads. Each
// rank keeps, in each of its lives, what it takes part in, as coll::Engine does; what answers are is
// written and read as on the wire. Faults strike at chosen moments.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "coll/engine.h"

namespace weft::test {

using coll::Answer;
using coll::Asking;
using coll::Interval;
using coll::Part;

class CollNet {
  public:
    // When a fault strikes: before it is asked, with some of its children asked, with all of them
    // asked and before its method runs, when that has run and nobody knows.
    enum class Moment : std::uint8_t { start, forwarding, forwarded, ran };
    enum class Kind : std::uint8_t {
        dies,      // Everybody sees it at once.
        vanishes,  // Its peers notice later.
        hangs,     // For a while: it says and hears nothing, then goes on.
        restarts,  // Knows nothing any more.
    };
    struct Fault {
        std::uint32_t position = 0;
        Moment moment = Moment::start;
        Kind kind = Kind::dies;
        Duration lasts = 0ns;  // Of a hang; of vanishing, until it is noticed.
    };
    struct Setup {
        std::shared_ptr<const coll::Plan> plan;
        std::uint32_t n = 0;
        bool outside = false;
        Policy policy = Policy::all;
        std::uint32_t quorum = 0;
        Duration timeout = 60s;
        Duration latency = 1ms;
        bool in_place = false;  // Methods end while they are begun.
    };
    struct Sent {
        std::uint32_t from = 0;
        std::uint32_t to = 0;
        Asking asking = Asking::all;
        bool named = false;
    };
    struct Rank {
        std::uint64_t incarnation = 1;  // Of which the view tells 1.
        std::uint64_t epoch = 1;        // 0: it has no such group.
        std::optional<Fault> fault;
        Duration runs_for = 0ns;  // never_ends: until it is stopped.
        bool fails = false;       // Its method, with INTERNAL.
        // What came of it.
        std::vector<int> runs = {0};  // In each life.
        int stops = 0;

        std::uint32_t life = 0;
        bool is_dead = false;
        Duration noticed_in = 0ns;
        TimePoint hangs_until{};
        std::uint32_t asked = 0;
    };
    static constexpr Duration never_ends = Duration::max();

    explicit CollNet(Setup setup) : setup_(std::move(setup)), ranks(setup_.n + 1) {
        known_.resize(setup_.n + 1);
    }

    // Until nothing is left to happen.
    void run() {
        for (std::uint32_t at = 0; at <= setup_.n; ++at) strike(at, Moment::start);
        start(setup_.plan);
        run_until(never);
    }
    void run_until(TimePoint end) {
        while (!events_.empty() && events_.top().at <= end) {
            Event event = events_.top();
            events_.pop();
            now_ = std::max(now_, event.at);
            Rank& rank = ranks[event.rank];
            if (rank.hangs_until > now_ && !rank.is_dead) {
                event.at = rank.hangs_until;
                events_.push(std::move(event));
                continue;
            }
            event.run();
        }
        if (end != never) now_ = end;
    }
    void start(std::shared_ptr<const coll::Plan> plan) {
        Part::Role role;
        role.mine = {0, setup_.n};
        role.is_origin = true;
        role.runs = !setup_.outside;
        role.policy = setup_.policy;
        role.quorum = setup_.quorum;
        role.until = now_ + setup_.timeout;
        origin_ = &make(origin_rank(), std::move(plan), ++begun_, role);
        enter(*origin_, [&] { origin_->part.begin(now_); });
    }
    // In another view, of the same ranks.
    void start_anew(std::shared_ptr<const coll::Plan> plan) {
        origin_->part.be_replaced();
        start(std::move(plan));
    }
    void stop(const Status& why) {
        enter(*origin_, [&] { origin_->part.stop(why); });
    }
    // At a later time, whatever is there then.
    void at(Duration later, std::function<void()> run) { push(now_ + later, setup_.n, std::move(run)); }
    void kill(std::uint32_t rank, Duration noticed_in = 0ns) { die(rank, noticed_in); }

    const Part& origin() const { return origin_->part; }
    std::uint32_t origin_rank() const { return setup_.outside ? setup_.n : 0; }
    TimePoint now() const { return now_; }
    // When the origin told, and when it was over.
    TimePoint told_at = never;
    TimePoint done_at = never;
    TimePoint last_work{};  // When any part did anything.
    int tells = 0;
    int refreshes = 0;
    std::vector<coll::Outcome> told;  // As the origin told.
    // What it does where the origin wants a later view; nothing: it goes on with its own.
    std::function<void(std::uint64_t epoch)> on_refresh;
    std::vector<Sent> sent;

    // What is left over of parts that nothing struck.
    std::string leftovers() const {
        std::string all = left_at_end_;
        for (const auto& one : instances_) {
            if (!is_live(*one)) continue;
            const Part& part = one->part;
            if (part.is_over() && part.asks() == 0 && part.askers() == 0 && part.due() == never &&
                one->askers.empty() && one->questions.empty()) {
                continue;
            }
            all += " part of " + std::to_string(one->rank) + ": over " +
                   std::to_string(part.is_over()) + ", asks " + std::to_string(part.asks()) +
                   ", askers " + std::to_string(part.askers());
        }
        return all;
    }
    // The reply of a position, by itself.
    static std::vector<std::byte> reply_of(const coll::Plan& plan, std::uint32_t position) {
        if (plan.merge.is_list()) return bytes_of("r" + std::to_string(position));
        if (plan.merge.reduction.operation == Reduction::Operation::method) {
            return bytes_of("<" + std::to_string(position) + ">");
        }
        std::vector<std::byte> bytes(8);
        base::store(bytes.data(), std::uint64_t{1} << position);
        return bytes;
    }
    static std::vector<std::byte> bytes_of(std::string_view text) {
        const ByteView bytes = as_bytes(text);
        return {bytes.begin(), bytes.end()};
    }

  private:
    struct Instance;
    struct Event {
        TimePoint at;
        std::uint64_t number;
        std::uint32_t rank;
        std::function<void()> run;
        bool operator<(const Event& other) const {
            return at != other.at ? at > other.at : number > other.number;
        }
    };
    struct Call {
        Instance* from = nullptr;
        std::uint32_t ask = 0;
        std::uint32_t to = 0;
        Interval of;
        Asking asking = Asking::all;
        bool named = false;
        Duration patience{};
        TimePoint deadline = never;
        bool open = true;  // Where it was made.
        bool came = false;
        bool replied = false;
        std::uint32_t life = 0;  // In which it came.
        Instance* at = nullptr;
        std::uint32_t asker = 0;
    };
    // What Operation is.
    struct Instance final : Part::Port {
        Instance(CollNet& of, std::uint32_t here, std::shared_ptr<const coll::Plan> plan,
                 std::uint64_t sequence, const Part::Role& role)
            : net(of),
              rank(here),
              life(of.ranks[here].life),
              part(*this, std::move(plan), {7, sequence}, role) {}

        void ask(Part&, const Part::Ask& ask) override { net.ask(*this, ask); }
        void give_up(Part&, std::uint32_t ask, bool stop) override { net.give_up(*this, ask, stop); }
        void run(Part&) override { net.run_method(*this); }
        void stop_running(Part&) override {
            stopped = true;
            if (net.is_live(*this)) ++net.ranks[rank].stops;
        }
        void reply_to(Part&, std::uint32_t asker, Answer::Kind kind) override {
            net.reply_to(*this, asker, kind);
        }
        void refresh(Part&, std::uint32_t, std::uint64_t epoch) override {
            ++net.refreshes;
            net.push(net.now_ + 3 * net.setup_.latency, rank, [this, epoch] {
                if (part.is_over()) return;
                if (net.on_refresh) return net.on_refresh(epoch);
                net.enter(*this, [&] { part.use_own_view(net.now_); });
            });
        }
        void tell(Part&) override {
            if (!net.is_live(*this)) return;
            ++net.tells;
            net.told_at = net.now_;
            net.told = part.take_all(fail(Code::unknown, "missing").with_effect(Effect::unknown));
        }
        void done(Part&) override { net.done(*this); }

        CollNet& net;
        const std::uint32_t rank;
        const std::uint32_t life;
        Part part;
        std::map<std::uint32_t, Call*> questions;  // By ask.
        struct Asker {
            bool alone = false;
            Call* call = nullptr;
        };
        std::map<std::uint32_t, Asker> askers;
        std::uint32_t next_asker = 1;
        std::vector<std::byte> answer;
        std::vector<std::byte> own_answer;
        TimePoint armed = never;
        bool stopped = false;  // Its method.
    };
    static constexpr std::size_t room = 1 << 20;

    bool is_live(const Instance& one) const {
        return !ranks[one.rank].is_dead && ranks[one.rank].life == one.life;
    }
    void push(TimePoint at, std::uint32_t rank, std::function<void()> run) {
        events_.push({at, ++events_made_, rank, std::move(run)});
    }
    Instance& make(std::uint32_t rank, std::shared_ptr<const coll::Plan> plan,
                   std::uint64_t sequence, const Part::Role& role) {
        instances_.push_back(std::make_unique<Instance>(*this, rank, std::move(plan), sequence, role));
        return *instances_.back();
    }
    template <class Work>
    void enter(Instance& one, Work work) {
        if (!is_live(one)) return;
        last_work = now_;
        work();
        arm(one);
    }
    void arm(Instance& one) {
        const TimePoint due = one.part.due();
        if (due == never || due >= one.armed) return;
        one.armed = due;
        push(std::max(due, now_), one.rank, [this, &one, due] {
            if (one.armed != due) return;
            one.armed = never;
            if (one.part.is_over()) return;
            if (now_ < one.part.due()) return arm(one);
            enter(one, [&] { one.part.on_time(now_); });
        });
    }
    // From a rank that may hang: what it sends leaves when it goes on.
    TimePoint leaves(std::uint32_t rank) const { return std::max(now_, ranks[rank].hangs_until); }

    // ---- faults --------------------------------------------------------------------------------

    void strike(std::uint32_t at, Moment moment) {
        Rank& rank = ranks[at];
        if (!rank.fault || rank.fault->moment != moment) return;
        const Fault fault = *rank.fault;
        rank.fault.reset();
        switch (fault.kind) {
            case Kind::dies: return die(at, 0ns);
            case Kind::vanishes: return die(at, fault.lasts);
            case Kind::hangs: rank.hangs_until = now_ + fault.lasts; return;
            case Kind::restarts:
                die(at, 0ns);
                rank.is_dead = false;
                ++rank.incarnation;
                rank.runs.push_back(0);
                return;
        }
    }
    void die(std::uint32_t at, Duration noticed_in) {
        Rank& rank = ranks[at];
        rank.is_dead = true;
        rank.noticed_in = noticed_in;
        ++rank.life;
        known_[at].clear();
        for (Call& call : calls_) {
            if (call.to == at && call.came && !call.replied) fail_at(call, lost(), noticed_in);
            if (call.from->rank == at && call.open) {
                call.open = false;
                push(now_ + noticed_in + setup_.latency, call.to, [this, &call] { leave(call); });
            }
        }
    }
    static Status lost() {
        return fail(Code::unavailable, "the peer is gone")
            .with_effect(Effect::unknown)
            .with_stage(Stage::sent);
    }
    void fail_at(Call& call, Status why, Duration later) {
        call.replied = true;
        push(now_ + later + setup_.latency, call.from->rank,
             [this, &call, why = std::move(why)] { fail_call(call, why); });
    }
    void fail_call(Call& call, const Status& why) {
        if (!call.open) return;
        call.open = false;
        enter(*call.from, [&] {
            call.from->questions.erase(call.ask);
            call.from->part.failed(call.ask, why, now_);
        });
    }

    // ---- who asks ------------------------------------------------------------------------------

    void ask(Instance& from, const Part::Ask& ask) {
        if (!is_live(from)) return;
        Call& call = calls_.emplace_back();
        call.from = &from;
        call.ask = ask.id;
        call.to = ask.of.first;
        call.of = ask.of;
        call.asking = ask.asking;
        call.named = ask.named || from.part.plan().roster->is_named();
        call.patience = Part::patience_of(ask);
        call.deadline = coll::share_of(now_, from.part.role().until);
        from.questions[ask.id] = &call;
        sent.push_back({from.rank, call.to, ask.asking, ask.named});
        push(leaves(from.rank) + setup_.latency, call.to, [this, &call] { come(call); });
        push(call.deadline, from.rank, [this, &call] {
            if (!call.open || !is_live(*call.from)) return;
            push(now_ + setup_.latency, call.to, [this, &call] { leave(call); });
            fail_call(call, fail(Code::deadline_exceeded, "no reply in time")
                                .with_effect(Effect::unknown)
                                .with_stage(Stage::sent));
        });
        Rank& rank = ranks[from.rank];
        if (!from.part.role().is_origin || !setup_.outside) {
            const std::size_t below = coll::split({from.part.role().mine.first + 1,
                                                   from.part.role().mine.last},
                                                  from.part.plan().tree,
                                                  from.part.plan().roster->hosts()).size();
            if (++rank.asked == (below + 1) / 2) strike(from.rank, Moment::forwarding);
        }
    }
    void give_up(Instance& from, std::uint32_t ask, bool stop) {
        if (!is_live(from)) return;
        const auto at = from.questions.find(ask);
        if (at == from.questions.end()) return;
        Call& call = *at->second;
        from.questions.erase(at);
        call.open = false;
        const TimePoint when = leaves(from.rank) + setup_.latency;
        if (stop) {
            const std::uint64_t sequence = from.part.identity().sequence;
            push(when, call.to, [this, to = call.to, sequence] {
                if (Instance* const there = find(to, sequence)) {
                    enter(*there, [&] { there->part.desert(now_); });
                }
            });
        }
        push(when, call.to, [this, &call] { leave(call); });
    }
    void leave(Call& call) {
        if (!call.at || !is_live(*call.at) || call.at->askers.erase(call.asker) == 0) return;
        enter(*call.at, [&] { call.at->part.asker_left(call.asker, now_); });
    }

    // ---- who is asked --------------------------------------------------------------------------

    Instance* find(std::uint32_t rank, std::uint64_t sequence) {
        if (ranks[rank].is_dead) return nullptr;
        const auto at = known_[rank].find(sequence);
        return at == known_[rank].end() ? nullptr : at->second;
    }
    // As Engine::on_forward().
    void come(Call& call) {
        Rank& rank = ranks[call.to];
        if (rank.is_dead) {
            const bool is_seen = rank.noticed_in == 0ns;
            return fail_at(call, lost().with_effect(is_seen ? Effect::none : Effect::unknown),
                           rank.noticed_in);
        }
        call.came = true;
        call.life = rank.life;
        const std::uint64_t sequence = call.from->part.identity().sequence;
        if (Instance* const there = find(call.to, sequence)) return join(*there, call);
        if (call.asking != Asking::all) {
            return fail_at(call,
                           fail(Code::aborted, "not known here").with_effect(Effect::unknown), 0ns);
        }
        const coll::Plan& plan = call.from->part.plan();
        if (rank.epoch == 0 || (!call.named && rank.epoch != plan.epoch)) {
            Answer stale;
            stale.kind = Answer::Kind::stale;
            stale.epoch = rank.epoch;
            return reply(call, coll::encode_answer(stale, room));
        }
        if (plan.roster->at(call.of.first).incarnation != rank.incarnation) {
            return fail_at(call, rejected(Code::failed_precondition, "another incarnation"), 0ns);
        }
        Part::Role role;
        role.mine = call.of;
        role.until = coll::share_of(now_, call.deadline);
        std::shared_ptr<const coll::Plan> its = call.from->part.shared_plan();
        if (call.named) its = named(*its, call.of);
        Instance& made = make(call.to, std::move(its), sequence, role);
        known_[call.to][sequence] = &made;
        join(made, call);
        enter(made, [&] { made.part.begin(now_); });
    }
    static std::shared_ptr<const coll::Plan> named(const coll::Plan& plan, Interval of) {
        std::vector<Member> members;
        for (std::uint32_t at = of.first; at < of.last; ++at) members.push_back(plan.roster->at(at));
        auto its = std::make_shared<coll::Plan>(plan);
        its->roster = std::make_shared<coll::Roster>(of.first, std::move(members),
                                                     plan.roster->root(),
                                                     !plan.roster->hosts().empty());
        return its;
    }
    // As Operation::ask().
    void join(Instance& there, Call& call) {
        const bool alone = call.asking == Asking::alone && there.part.role().mine.size() > 1;
        if (there.part.is_over()) {
            const std::vector<std::byte>& kept = alone ? there.own_answer : there.answer;
            if (kept.empty()) {
                return fail_at(call, fail(Code::aborted, "not kept").with_effect(Effect::unknown),
                               0ns);
            }
            return reply(call, kept);
        }
        if (alone && there.part.outcomes().own()) {
            return reply(call, coll::encode_answer(*there.part.outcomes().own(), room));
        }
        call.at = &there;
        call.asker = there.next_asker++;
        there.askers[call.asker] = {alone, &call};
        enter(there, [&] { there.part.asked(call.asker, now_ + call.patience); });
    }
    void reply(Call& call, std::vector<std::byte> bytes) {
        call.replied = true;
        push(leaves(call.to) + setup_.latency, call.from->rank,
             [this, &call, bytes = std::move(bytes)] {
                 if (!call.open) return;
                 call.open = false;
                 enter(*call.from, [&] {
                     call.from->questions.erase(call.ask);
                     call.from->part.answered(call.ask, coll::decode_answer(bytes).value(), now_);
                 });
             });
    }
    void reply_to(Instance& from, std::uint32_t asker, Answer::Kind kind) {
        if (!is_live(from)) return;
        const auto at = from.askers.find(asker);
        if (at == from.askers.end()) return;
        const Instance::Asker told = at->second;
        from.askers.erase(at);
        const coll::Outcomes& outcomes = from.part.outcomes();
        if (told.alone) {
            const Answer* const own = outcomes.own();
            return reply(*told.call, coll::encode_answer(own ? *own : coll::Outcomes::told_nothing(),
                                                         room));
        }
        reply(*told.call, coll::encode_answer(outcomes.told(kind == Answer::Kind::complete), room));
    }
    void run_method(Instance& one) {
        if (!is_live(one)) return;
        strike(one.rank, Moment::forwarded);
        if (!is_live(one)) return;
        Rank& rank = ranks[one.rank];
        const auto end = [this, &one] {
            if (!is_live(one) || one.stopped) return;
            strike(one.rank, Moment::ran);
            if (ranks[one.rank].hangs_until > now_) {  // What it does next, when it goes on.
                return push(now_, one.rank, [this, &one] { finish(one); });
            }
            finish(one);
        };
        const auto begin = [this, &one, &rank, end] {
            if (!is_live(one) || one.stopped) return;
            ++rank.runs[rank.runs.size() - 1];
            if (rank.runs_for == never_ends) return;
            if (setup_.in_place && rank.runs_for == 0ns) return end();
            push(now_ + rank.runs_for, one.rank, end);
        };
        if (rank.hangs_until > now_) return push(now_, one.rank, begin);
        begin();
    }
    void finish(Instance& one) {
        if (one.stopped) return;
        const Rank& rank = ranks[one.rank];
        const std::uint32_t position = one.part.role().mine.first;
        const Status status =
            rank.fails ? rejected(Code::internal, "it can't").with_effect(Effect::applied)
                       : Status().with_effect(Effect::applied).with_stage(Stage::executing);
        enter(one, [&] {
            one.part.ran(status, rank.fails ? std::vector<std::byte>()
                                            : reply_of(one.part.plan(), position));
        });
    }
    // As Operation::done().
    void done(Instance& one) {
        if (!is_live(one)) return;
        if (&one == origin_) done_at = now_;
        if (one.part.asks() > 0 || !one.questions.empty()) {
            left_at_end_ += " questions at the end of " + std::to_string(one.rank);
        }
        if (one.part.role().is_origin) return;
        one.answer = coll::encode_answer(one.part.outcomes().told(true), room);
        if (const Answer* own = one.part.outcomes().own()) {
            one.own_answer = coll::encode_answer(*own, room);
        }
        if (one.part.did_nothing()) known_[one.rank].erase(one.part.identity().sequence);
    }

    const Setup setup_;
    std::vector<std::map<std::uint64_t, Instance*>> known_;
    std::vector<std::unique_ptr<Instance>> instances_;
    std::deque<Call> calls_;
    std::priority_queue<Event> events_;
    std::uint64_t events_made_ = 0;
    std::uint64_t begun_ = 0;
    std::string left_at_end_;
    Instance* origin_ = nullptr;
    TimePoint now_ = TimePoint(1h);

  public:
    std::vector<Rank> ranks;  // By position; behind them an outside client.
};

}  // namespace weft::test
