// Ranks that play their parts in collectives over messages of virtual time: no RPC, no threads.
// Each rank keeps, in each of its lives, what it takes part in, as coll::Engine does; what answers
// are is written and read as on the wire. Faults strike at chosen moments.
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

class CollNet {
  public:
    using Answer = coll::Answer;
    using Asking = coll::Asking;
    using Interval = coll::Interval;
    using Part = coll::Part;

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
    void at(Duration later, std::function<void()> run) {
        push(now_ + later, setup_.n, std::move(run));
    }
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
    bool waits_in_vain = false;       // Somebody has, for an outcome that nobody would tell.
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
        std::shared_ptr<const coll::Plan> plan;
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
        void give_up(Part&, const Part::Ask& ask, bool stop) override {
            net.give_up(*this, ask, stop);
        }
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
        instances_.push_back(
            std::make_unique<Instance>(*this, rank, std::move(plan), sequence, role));
        return *instances_.back();
    }
    template <class Work>
    void enter(Instance& one, Work work) {
        if (!is_live(one)) return;
        last_work = now_;
        ++entered_;
        work();
        --entered_;
        if (entered_ == 0 && is_live(one) && !one.part.awaits_all()) waits_in_vain = true;
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
    void strike(std::uint32_t at, Moment moment);
    void die(std::uint32_t at, Duration noticed_in);
    static Status lost();
    void fail_at(Call& call, Status why, Duration later);
    void fail_call(Call& call, const Status& why);
    void ask(Instance& from, const Part::Ask& ask);
    void give_up(Instance& from, const Part::Ask& ask, bool stop);
    void leave(Call& call);
    Instance* find(std::uint32_t rank, std::uint64_t sequence);
    // As Engine::on_forward().
    void come(Call& call);
    static std::shared_ptr<const coll::Plan> named(const coll::Plan& plan, Interval of);
    // As Operation::ask().
    void join(Instance& there, Call& call);
    void reply(Call& call, std::vector<std::byte> bytes);
    void reply_to(Instance& from, std::uint32_t asker, Answer::Kind kind);
    void run_method(Instance& one);
    void finish(Instance& one);
    // As Operation::done().
    void done(Instance& one);

    const Setup setup_;
    std::vector<std::map<std::uint64_t, Instance*>> known_;
    std::vector<std::unique_ptr<Instance>> instances_;
    std::deque<Call> calls_;
    std::priority_queue<Event> events_;
    std::uint64_t events_made_ = 0;
    std::uint64_t begun_ = 0;
    int entered_ = 0;
    std::string left_at_end_;
    Instance* origin_ = nullptr;
    TimePoint now_ = TimePoint(1h);

  public:
    std::vector<Rank> ranks;  // By position; behind them an outside client.
};

}  // namespace weft::test
