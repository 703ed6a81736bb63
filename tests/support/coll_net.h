// Ranks that take part in collectives over messages in virtual time: no RPC, no threads. In each of
// its lives a rank keeps its collectives as coll::CollectiveMember does; replies are encoded and
// decoded as on the wire. Faults strike at chosen moments.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "base/codec.h"
#include "coll/state_driver.h"
#include "coll/time_budget.h"

namespace weft::test {

class CollNet {
  public:
    using SubtreeReply = coll::SubtreeReply;
    using RequestKind = coll::RequestKind;
    using Interval = coll::Interval;
    using CollectiveState = coll::CollectiveState;

    // The time at which a fault strikes: before the request arrives; with requests sent to some
    // children; with requests sent to all children and before the method runs; when the method has
    // run and its outcome is unreported.
    enum class Moment : std::uint8_t { start, forwarding, forwarded, ran };
    enum class Kind : std::uint8_t {
        dies,      // All peers notice at once.
        vanishes,  // Its peers notice later.
        hangs,     // Sends and receives nothing for a while, then resumes.
        restarts,  // Loses all state.
    };
    struct Fault {
        std::uint32_t position = 0;
        Moment moment = Moment::start;
        Kind kind = Kind::dies;
        Duration lasts = 0ns;  // Of a hang; for `vanishes`: until it is noticed.
    };
    struct Setup {
        std::shared_ptr<const coll::Plan> plan;
        std::uint32_t n = 0;
        bool outside = false;
        Policy policy = Policy::all;
        std::uint32_t quorum = 0;
        Duration timeout = 60s;
        Duration latency = 1ms;
        bool in_place = false;  // Methods complete within the call that begins them.
    };
    struct Sent {
        std::uint32_t from = 0;
        std::uint32_t to = 0;
        RequestKind kind = RequestKind::all;
        bool named = false;
    };
    struct Rank {
        std::uint64_t incarnation = 1;  // The view has 1.
        std::uint64_t epoch = 1;        // 0: the rank has no such group.
        std::optional<Fault> fault;
        Duration runs_for = 0ns;  // never_ends: until it is cancelled.
        bool fails = false;       // Its method fails with INTERNAL.
        // Results.
        std::vector<int> runs = {0};  // By life.
        int stops = 0;

        std::uint32_t life = 0;
        bool is_dead = false;
        Duration noticed_in = 0ns;
        TimePoint hangs_until{};
        std::uint32_t requests_sent = 0;
    };
    static constexpr Duration never_ends = Duration::max();

    explicit CollNet(Setup setup) : setup_(std::move(setup)), ranks(setup_.n + 1) {
        known_.resize(setup_.n + 1);
    }

    // Runs until no event is left.
    void run() {
        for (std::uint32_t at = 0; at <= setup_.n; ++at) inject(at, Moment::start);
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
        CollectiveState::Role role;
        role.subtree = {0, setup_.n};
        role.is_origin = true;
        role.runs_method = !setup_.outside;
        role.policy = setup_.policy;
        role.quorum = setup_.quorum;
        role.deadline = now_ + setup_.timeout;
        origin_ = &make(origin_rank(), std::move(plan), ++begun_, role);
        enter(*origin_, [&] { origin_->step(&CollectiveState::begin, now_); });
    }
    // Starts again in another view of the same ranks.
    void restart(std::shared_ptr<const coll::Plan> plan) {
        origin_->own_state().supersede();
        start(std::move(plan));
    }
    void cancel(const Status& why) {
        enter(*origin_, [&] { origin_->step(&CollectiveState::cancel, why, true); });
    }
    // Runs later, whatever the state is then.
    void at(Duration later, std::function<void()> run) {
        push(now_ + later, setup_.n, std::move(run));
    }
    void kill(std::uint32_t rank, Duration noticed_in = 0ns) { die(rank, noticed_in); }

    const CollectiveState& origin() const { return origin_->state(); }
    std::uint32_t origin_rank() const { return setup_.outside ? setup_.n : 0; }
    TimePoint now() const { return now_; }
    // The times of the origin's report and of its end.
    TimePoint reported_at = never;
    TimePoint done_at = never;
    TimePoint last_work{};  // The time of the last step of any rank.
    int reports = 0;
    int refreshes = 0;
    bool waits_for_nothing = false;       // A parent waits for an outcome that would never arrive.
    std::vector<coll::Outcome> reported;  // The report of the origin.
    // Called when the origin requests a later view; empty: it continues with its own view.
    std::function<void(std::uint64_t epoch)> on_refresh;
    std::vector<Sent> sent;

    // State that remains on ranks without a fault.
    std::string leftovers() const {
        std::string all = left_at_end_;
        for (const auto& one : instances_) {
            if (!is_live(*one)) continue;
            const CollectiveState& state = one->state();
            if (state.is_done() && state.child_requests() == 0 && state.waiting_parents() == 0 &&
                state.due() == never && one->parent_requests.empty() && one->child_calls.empty()) {
                continue;
            }
            all += " state of " + std::to_string(one->rank) + ": done " +
                   std::to_string(state.is_done()) + ", child requests " +
                   std::to_string(state.child_requests()) + ", waiting parents " +
                   std::to_string(state.waiting_parents());
        }
        return all;
    }
    // The reply of a single position.
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
        std::uint32_t request = 0;
        std::uint32_t to = 0;
        Interval of;
        std::shared_ptr<const coll::Plan> plan;
        RequestKind kind = RequestKind::all;
        bool named = false;
        Duration progress_interval{};
        TimePoint deadline = never;
        bool open = true;  // The caller still waits.
        bool arrived = false;
        bool replied = false;
        std::uint32_t life = 0;  // The life that received it.
        Instance* at = nullptr;
        std::uint32_t parent_request = 0;
    };
    // The counterpart of OriginDriver and MemberDriver.
    struct Instance final : coll::StateDriver {
        Instance(CollNet& of, std::uint32_t here, std::shared_ptr<const coll::Plan> plan,
                 std::uint64_t sequence, const CollectiveState::Role& role)
            : StateDriver(std::move(plan), {7, sequence}, role),
              net(of),
              rank(here),
              life(of.ranks[here].life) {}
        using StateDriver::own_state;
        using StateDriver::step;

        void send_request(const coll::ChildRequest& request) override {
            net.send_request(*this, request);
        }
        void run_method() override { net.run_method(*this); }
        void cancel_request(const coll::Ready::Cancel& cancel) override {
            net.cancel_request(*this, cancel);
        }
        void cancel_method() override {
            stopped = true;
            if (net.is_live(*this)) ++net.ranks[rank].stops;
        }
        void refresh(const coll::Ready::Refresh& refresh) override {
            ++net.refreshes;
            net.push(net.now_ + 3 * net.setup_.latency, rank, [this, epoch = refresh.epoch] {
                if (state().is_done()) return;
                if (net.on_refresh) return net.on_refresh(epoch);
                net.enter(*this, [&] { step(&CollectiveState::use_own_view, net.now_); });
            });
        }
        void report() override {
            if (!net.is_live(*this)) return;
            ++net.reports;
            net.reported_at = net.now_;
            net.reported = state().outcomes_for_caller(
                fail(Code::unknown, "missing").with_effect(Effect::unknown));
        }
        void reply(const coll::Ready::Reply& reply) override { net.reply_to(*this, reply); }
        void on_done() override { net.done(*this); }

        CollNet& net;
        const std::uint32_t rank;
        const std::uint32_t life;
        std::map<std::uint32_t, Call*> child_calls;  // By request id.
        struct ParentRequest {
            bool self_only = false;
            Call* call = nullptr;
        };
        std::map<std::uint32_t, ParentRequest> parent_requests;
        std::uint32_t next_request = 1;
        std::vector<std::byte> subtree_reply;
        std::vector<std::byte> own_reply;
        TimePoint armed = never;
        bool stopped = false;  // The method was cancelled.
    };
    static constexpr std::size_t room = 1 << 20;

    bool is_live(const Instance& one) const {
        return !ranks[one.rank].is_dead && ranks[one.rank].life == one.life;
    }
    void push(TimePoint at, std::uint32_t rank, std::function<void()> run) {
        events_.push({at, ++events_made_, rank, std::move(run)});
    }
    Instance& make(std::uint32_t rank, std::shared_ptr<const coll::Plan> plan,
                   std::uint64_t sequence, const CollectiveState::Role& role) {
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
        if (entered_ == 0 && is_live(one) && !one.state().awaits_all()) waits_for_nothing = true;
        arm(one);
    }
    void arm(Instance& one) {
        const TimePoint due = one.state().due();
        if (due == never || due >= one.armed) return;
        one.armed = due;
        push(std::max(due, now_), one.rank, [this, &one, due] {
            if (one.armed != due) return;
            one.armed = never;
            if (one.state().is_done()) return;
            if (now_ < one.state().due()) return arm(one);
            enter(one, [&] { one.step(&CollectiveState::on_timer, now_); });
        });
    }
    // When a message of `rank` leaves: a rank that hangs sends it when it resumes.
    TimePoint send_time(std::uint32_t rank) const {
        return std::max(now_, ranks[rank].hangs_until);
    }
    void inject(std::uint32_t at, Moment moment);
    void die(std::uint32_t at, Duration noticed_in);
    static Status lost();
    void fail_at(Call& call, Status why, Duration later);
    void fail_call(Call& call, const Status& why);
    void send_request(Instance& from, const coll::ChildRequest& request);
    void cancel_request(Instance& from, const coll::Ready::Cancel& cancel);
    void on_request_gone(Call& call);
    Instance* find(std::uint32_t rank, std::uint64_t sequence);
    // As CollectiveMember::on_forward().
    void receive(Call& call);
    static std::shared_ptr<const coll::Plan> named(const coll::Plan& plan, Interval of);
    // As MemberDriver::on_request().
    void on_request(Instance& there, Call& call);
    void reply(Call& call, std::vector<std::byte> bytes);
    void reply_to(Instance& from, const coll::Ready::Reply& to);
    void run_method(Instance& one);
    void finish(Instance& one);
    // As MemberDriver::on_done().
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
    std::vector<Rank> ranks;  // By position; the last one is an outside client.
};

}  // namespace weft::test
