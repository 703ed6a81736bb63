#include "simulation/group_nested.h"

#include <algorithm>
#include <set>

#include "base/codec.h"

namespace weft::scenarios {

namespace {

constexpr MethodId outer_method("sim.Group/Outer");
constexpr MethodId outer_one_method("sim.Group/OuterOne");  // The same, as a call of one rank.
constexpr MethodId inner_method("sim.Group/Inner");
constexpr std::uint32_t nested_a_seed = 3;
constexpr std::uint32_t inner_ranks_max = 24;
constexpr Duration nested_wait = 20s;
constexpr Duration cancel_limit = 5s;

std::vector<std::byte> body_of(std::uint64_t number) {
    std::vector<std::byte> bytes(sizeof number);
    std::copy_n(reinterpret_cast<const std::byte*>(&number), bytes.size(), bytes.begin());
    return bytes;
}

std::uint64_t number_in(const Call& call) {
    return call.request().size() == 8 ? base::load<std::uint64_t>(call.request().data()) : ~0ull;
}

}  // namespace

// An outer call, which its caller cancels or lets time out, or which loses its caller.
struct GroupNested::Outer {
    enum class End : std::uint8_t { cancel, timeout, death };
    std::uint64_t number = 0;
    std::string origin;
    std::uint32_t origin_life = 0;
    End end = End::cancel;
    Duration after{};  // Since it began.
    bool is_complete = false;
    std::set<Life> ran;
};

struct GroupNested::Inner {
    std::uint64_t number = 0;
    Life at;  // The rank and life that begin it.
    std::vector<std::uint32_t> ranks;
    std::uint32_t completions = 0;
    TimePoint cancelled_at = never;                 // When its handler was notified.
    std::map<Life, std::shared_ptr<Call>> running;  // Running handlers.
    std::set<Life> ran;
};

GroupNested::GroupNested(GroupStage& stage) : stage_(stage) {
    stage_.serve([this](MethodRegistrar& registrar, std::uint32_t rank, std::uint32_t life) {
        const Life at{rank, life};
        const auto outer = [this, at](Call call) {
            run_outer(std::make_shared<Call>(std::move(call)), at);
        };
        registrar.add(outer_method, outer, {.collective = true});
        registrar.add(outer_one_method, outer);
        registrar.add(
            inner_method,
            [this, at](Call call) { run_inner(std::make_shared<Call>(std::move(call)), at); },
            {.collective = true});
    });
}

GroupNested::~GroupNested() = default;

std::string GroupNested::describe(const Inner& inner) {
    return "nested collective " + std::to_string(inner.number) + " of rank" +
           std::to_string(inner.at.first) + ", life " + std::to_string(inner.at.second);
}

// ---- the outer calls ---------------------------------------------------------------------------

void GroupNested::plan() {
    for (std::uint32_t i = 0; i < nested_a_seed; ++i) {
        stage_.simulation().in(stage_.random_time(1s), [this] {
            const std::string origin = stage_.any_origin();
            if (!stage_.is_awake(origin)) return;
            stage_.simulation().act_as(origin, [&] { begin(origin); });
        });
    }
}

void GroupNested::begin(const std::string& origin) {
    Outer& outer = *outers_.emplace_back(std::make_unique<Outer>());
    outer.number = outers_.size() - 1;
    outer.origin = origin;
    outer.origin_life = stage_.simulation().starts(origin);
    const auto rank = stage_.rank_of(origin);
    const bool may_die = rank && !stage_.is_wild() && !stage_.is_stuck();
    outer.end = static_cast<Outer::End>(stage_.below(may_die ? 3 : 2));
    outer.after = 10ms + stage_.random_time(1s);
    if (stage_.below(2) == 0) {
        const GroupView view = stage_.group_of(origin).view();
        call_one(outer, view.at(static_cast<std::uint32_t>(stage_.below(view.size()))).rank);
    } else {
        call_group(outer);
    }
}

void GroupNested::call_one(Outer& outer, std::uint32_t rank) {
    const Result<Channel> channel = stage_.group_of(outer.origin).channel(rank);
    if (!channel) return complete(outer);
    CallOptions options;
    options.timeout = outer.end == Outer::End::timeout ? outer.after : nested_wait;
    const OperationId id =
        channel->call(outer_one_method, body_of(outer.number), options,
                      [this, &outer](const Status&, ByteView) { complete(outer); });
    end_later(outer, [channel = *channel, id] { channel.cancel_call(id); });
}

void GroupNested::call_group(Outer& outer) {
    const Group group = stage_.group_of(outer.origin);
    const GroupView view = group.view();
    RankSet some;
    for (std::uint64_t i = 1 + stage_.below(3); i > 0; --i) {
        some.add(view.at(static_cast<std::uint32_t>(stage_.below(view.size()))).rank);
    }
    GroupCallOptions options;
    options.timeout = outer.end == Outer::End::timeout ? outer.after : nested_wait;
    options.include = &some;
    options.topology = stage_.any_topology();
    const CollectiveId id =
        group.collective(outer_method, BodyWriter::of(body_of(outer.number)), options,
                         [this, &outer](const GroupOutcome&) { complete(outer); });
    end_later(outer, [group, id] { group.cancel(id); });
}

void GroupNested::end_later(Outer& outer, std::function<void()> cancel) {
    if (outer.end == Outer::End::timeout) return;
    stage_.simulation().in(outer.after, [this, &outer, cancel = std::move(cancel)] {
        if (outer.is_complete || !stage_.is_alive(outer.origin, outer.origin_life)) return;
        if (outer.end == Outer::End::death) {
            return stage_.strike(*stage_.rank_of(outer.origin), GroupStage::FaultKind::fatal);
        }
        stage_.when_running(outer.origin, outer.origin_life, cancel);
    });
}

void GroupNested::complete(Outer& outer) {
    if (stage_.is_alive(outer.origin, outer.origin_life)) outer.is_complete = true;
}

// ---- handlers ----------------------------------------------------------------------------------

void GroupNested::run_outer(const std::shared_ptr<Call>& call, Life at) {
    const std::uint64_t number = number_in(*call);
    if (number >= outers_.size()) return call->reply({});
    Outer& outer = *outers_[number];
    stage_.results().hold(outer.ran.insert(at).second, Rule::runs_at_most_once, [&] {
        return "call " + std::to_string(number) + " of " + outer.origin + " again on " +
               stage_.name_of(at.first);
    });
    Inner& inner = *inners_.emplace_back(std::make_unique<Inner>());
    inner.number = inners_.size() - 1;
    inner.at = at;
    call->on_cancel([this, &inner] {
        if (!is_alive(inner.at)) return;
        inner.cancelled_at = stage_.now();
        stage_.simulation().in(cancel_limit, [this, &inner] { validate_cancelled(inner); });
    });
    begin_inner(call, inner);
}

void GroupNested::begin_inner(const std::shared_ptr<Call>& call, Inner& inner) {
    const Group group = stage_.group_of(stage_.name_of(inner.at.first));
    const GroupView view = group.view();
    RankSet some;
    const std::uint64_t most = std::min(inner_ranks_max, view.size());
    for (std::uint64_t i = 1 + stage_.below(most); i > 0; --i) {
        some.add(view.at(static_cast<std::uint32_t>(stage_.below(view.size()))).rank);
    }
    inner.ranks = participants(view, some, {});
    GroupCallOptions options;
    options.timeout = nested_wait;
    options.include = &some;
    options.topology = stage_.any_topology();
    group.collective(
        inner_method, BodyWriter::of(body_of(inner.number)), options,
        [this, &inner, call](const GroupOutcome& all) { on_inner_done(inner, call, all); });
}

void GroupNested::on_inner_done(Inner& inner, const std::shared_ptr<Call>& call,
                                const GroupOutcome& all) {
    if (!is_alive(inner.at)) return;
    ++inner.completions;
    stage_.results().hold(inner.completions == 1, Rule::nested_ends,
                          [&] { return describe(inner) + " ends again"; });
    trace_.mix(inner.number * 64 + static_cast<std::uint64_t>(all.status.code()));
    if (!call->answered()) call->reply({});
}

// Replies after a while, or when it is cancelled.
void GroupNested::run_inner(const std::shared_ptr<Call>& call, Life at) {
    const std::uint64_t number = number_in(*call);
    if (number >= inners_.size()) return call->reply({});
    Inner& inner = *inners_[number];
    stage_.results().hold(inner.ran.insert(at).second, Rule::runs_at_most_once, [&] {
        return describe(inner) + " again on " + stage_.name_of(at.first);
    });
    inner.running[at] = call;
    call->on_cancel([&inner, call, at] {
        inner.running.erase(at);
        call->fail(fail(Code::aborted, "was held"));
    });
    const std::uint64_t how = stage_.below(4);
    if (how == 0) return;
    const Duration takes = how == 1 ? stage_.random_time(100ms) : 1s + stage_.random_time(10s);
    stage_.simulation().in(takes, [this, &inner, call, at] {
        stage_.when_running(stage_.name_of(at.first), at.second, [&inner, call, at] {
            if (inner.running.erase(at) != 0 && !call->answered()) call->reply({});
        });
    });
}

// ---- checks ------------------------------------------------------------------------------------

void GroupNested::validate_cancelled(const Inner& inner) const {
    const auto is_sound = [this](std::uint32_t rank) { return !stage_.was_struck(rank); };
    // A dead rank does not cancel its requests.
    if (stage_.is_wild() || !is_alive(inner.at) || !is_sound(inner.at.first)) return;
    if (!std::all_of(inner.ranks.begin(), inner.ranks.end(), is_sound)) return;
    std::string left;
    for (const auto& [at, call] : inner.running) {
        if (is_alive(at) && !call->answered() && !call->cancelled()) {
            left += " " + stage_.name_of(at.first);
        }
    }
    stage_.results().hold(left.empty(), Rule::nested_is_cancelled,
                          [&] { return describe(inner) + " goes on at" + left; });
}

bool GroupNested::is_settled() const {
    const bool are_over = std::all_of(outers_.begin(), outers_.end(), [this](const auto& outer) {
        return outer->is_complete || !stage_.is_alive(outer->origin, outer->origin_life);
    });
    return are_over && std::all_of(inners_.begin(), inners_.end(), [this](const auto& inner) {
               const bool is_late = inner->cancelled_at == never ||
                                    stage_.now() > inner->cancelled_at + cancel_limit;
               return is_late && (inner->completions > 0 || !is_alive(inner->at));
           });
}

void GroupNested::close() {
    for (const auto& inner : inners_) {
        inner->running.clear();
        if (!is_alive(inner->at)) continue;
        stage_.results().hold(inner->completions == 1, Rule::nested_ends, [&] {
            return describe(*inner) + " ended " + std::to_string(inner->completions) + " times";
        });
    }
}

}  // namespace weft::scenarios
