// A collective with very many children: the work for each child must not grow with their number.
#include <algorithm>
#include <random>

#include "support/catch.h"
#include "support/coll_checks.h"
#include "support/seed.h"
#include "support/stepped_state.h"

using namespace weft;

namespace weft::coll_child_requests_test {
namespace {

using coll::ChildRequest;
using coll::CollectiveState;
using coll::RequestKind;
using coll::RequestPhase;

void toggle(ChildRequest& request, RequestPhase phase) {
    request.phase = request.is(phase) ? RequestPhase::sent : phase;
}

// ---- the same results as a plain list -----------------------------------------------------------

struct Plain {
    std::vector<ChildRequest> requests;

    TimePoint due() const {
        TimePoint at = never;
        for (const ChildRequest& request : requests) at = std::min(at, coll::due_of(request));
        return at;
    }
    std::vector<std::uint32_t> due_by(TimePoint now) const {
        std::vector<std::uint32_t> due;
        for (const ChildRequest& request : requests) {
            if (coll::due_of(request) <= now) due.push_back(request.id);
        }
        return due;
    }
    template <class Is>
    std::size_t count(Is is) const {
        return static_cast<std::size_t>(std::count_if(requests.begin(), requests.end(), is));
    }
};

void compare(coll::ChildRequests& requests, const Plain& plain, TimePoint now) {
    const std::size_t n = plain.requests.size();
    REQUIRE(requests.size() == n);
    REQUIRE(requests.due() == plain.due());
    REQUIRE(requests.due_by(now) == plain.due_by(now));
    REQUIRE(requests.all_stale_view() == (plain.count([](const ChildRequest& request) {
                return request.is(RequestPhase::stale_view);
            }) == n));
    REQUIRE(requests.all_suspect() == (plain.count([](const ChildRequest& request) {
                return request.is_suspect || request.awaits_suspects;
            }) == n));
    REQUIRE(requests.self_only() == plain.count([](const ChildRequest& request) {
        const bool is_slow =
            request.is_suspect || request.is(RequestPhase::backing_off) || request.rounds > 0;
        return request.kind == RequestKind::self_only && !request.is(RequestPhase::queued) &&
               !is_slow;
    }));
    const auto queued =
        std::find_if(plain.requests.begin(), plain.requests.end(),
                     [](const ChildRequest& request) { return request.is(RequestPhase::queued); });
    const ChildRequest* const found = requests.first_queued();
    REQUIRE((found != nullptr) == (queued != plain.requests.end()));
    if (found) REQUIRE(found->id == queued->id);
    std::vector<std::uint32_t> ids, expected;
    requests.for_each([&](const ChildRequest& request) { ids.push_back(request.id); });
    for (const ChildRequest& request : plain.requests) expected.push_back(request.id);
    REQUIRE(ids == expected);
}

TEST_CASE("coll many: lookups of child requests give the results of a plain list") {
    for (std::uint64_t index = 0; index < 30; ++index) {
        const std::uint64_t seed = test::seed_of(index);
        INFO("seed " << seed);
        std::mt19937_64 random(seed);
        const auto below = [&](std::uint64_t end) { return random() % end; };
        coll::ChildRequests requests;
        Plain plain;
        TimePoint now = TimePoint{} + 1h;
        std::uint32_t next = 1;
        const std::uint64_t most = 20 + below(200);
        for (int step = 0; step < 1500; ++step) {
            now += std::chrono::microseconds(below(3000));
            const bool grows = plain.requests.size() < (step / 300 % 2 == 0 ? most : most / 8);
            if (plain.requests.empty() || (grows && below(2) == 0)) {
                ChildRequest made;
                made.of = {next, next + 1 + static_cast<std::uint32_t>(below(1000))};
                made.kind = below(4) == 0 ? RequestKind::self_only : RequestKind::all;
                if (below(10) == 0) made.phase = RequestPhase::queued;
                ChildRequest& added = requests.add(made);
                REQUIRE(added.id == next++);
                requests.change(added, [&](ChildRequest& request) { request.sent_at = now; });
                plain.requests.push_back(added);
            } else if (const std::size_t at = below(plain.requests.size());
                       grows || below(3) != 0) {
                ChildRequest& request = *requests.find(plain.requests[at].id);
                requests.change(request, [&](ChildRequest& changed) {
                    switch (below(5)) {
                        case 0: changed.sent_at = now; break;
                        case 1: toggle(changed, RequestPhase::backing_off); break;
                        case 2: toggle(changed, RequestPhase::stale_view); break;
                        case 3: changed.is_suspect = !changed.is_suspect; break;
                        case 4:
                            changed.awaits_suspects = !changed.awaits_suspects;
                            ++changed.rounds;
                            break;
                    }
                });
                plain.requests[at] = request;
            } else {
                const std::uint32_t id = plain.requests[at].id;
                REQUIRE(requests.take(*requests.find(id)).id == id);
                REQUIRE(requests.find(id) == nullptr);
                plain.requests.erase(plain.requests.begin() + static_cast<std::ptrdiff_t>(at));
            }
            compare(requests, plain, now);
        }
        REQUIRE(requests.take_all().size() == plain.requests.size());
        REQUIRE(requests.empty());
        REQUIRE(requests.due() == never);
    }
}

// ---- requests visited by a collective with very many children -----------------------------------

struct Origin final : test::SteppedState {
    static constexpr std::uint32_t n = 20'000;

    Origin() : SteppedState(plan(), role()) {
        begin(now);
        on_method_done();
        REQUIRE(open.size() == n - 1);
        REQUIRE(state().child_requests() == n - 1);
    }
    static std::shared_ptr<const coll::Plan> plan() {
        static const coll_state::Form flat{"flat", {coll::Shape::flat}};
        return coll_state::plan_of(n, flat, coll_state::Merging::list);
    }
    static CollectiveState::Role role() {
        CollectiveState::Role role;
        role.subtree = {0, n};
        role.is_origin = true;
        role.policy = Policy::best_effort;
        role.deadline = began + 60s;
        return role;
    }
    void send_request(const ChildRequest& request) override { open.push_back(request); }
    void cancel_request(const coll::Ready::Cancel&) override { ++cancelled; }
    void on_done() override { is_done = true; }

    // `requests`: requests and replies processed so far, in all.
    void check_visited(std::uint64_t requests) const {
        INFO(state().requests_visited() << " visited for " << requests << " requests and replies");
        CHECK(state().requests_visited() <= 20 * requests);
    }

    static constexpr TimePoint began = TimePoint{} + 1h;
    TimePoint now = began;
    std::vector<ChildRequest> open;
    std::uint32_t cancelled = 0;
    bool is_done = false;
};

coll::SubtreeReply reply_of(const ChildRequest& request,
                            coll::SubtreeReply::Kind kind = coll::SubtreeReply::Kind::complete) {
    coll::SubtreeReply answer;
    answer.kind = kind;
    if (kind == coll::SubtreeReply::Kind::complete) answer.ok = {request.of};
    return answer;
}

TEST_CASE("coll many: the reply of one child does not walk over the requests to the others") {
    Origin origin;
    for (std::size_t i = 0; i + 1 < origin.open.size(); ++i) {
        const ChildRequest request = origin.open[i];
        if (i % 2 == 0) {
            origin.on_failure(request.id, fail(Code::unavailable, "gone"), origin.now);
        } else {
            origin.on_reply(request.id, reply_of(request), origin.now);
        }
        REQUIRE(origin.state().due() != never);
    }
    origin.check_visited(Origin::n);
    REQUIRE_FALSE(origin.is_done);
    origin.on_failure(origin.open.back().id, fail(Code::unavailable, "gone"), origin.now);
    REQUIRE(origin.is_done);
    REQUIRE(origin.cancelled == 0);
}

TEST_CASE("coll many: children with partial replies are requested again without a walk over all") {
    Origin origin;
    std::uint64_t did = Origin::n;
    // Each at a different time, so that each is due separately.
    const std::vector<ChildRequest> first = std::exchange(origin.open, {});
    for (const ChildRequest& request : first) {
        origin.now += 10us;
        origin.on_reply(request.id, reply_of(request, coll::SubtreeReply::Kind::partial),
                        origin.now);
    }
    did += first.size();
    const TimePoint end = origin.now + 400ms;
    while (origin.state().due() < end) {
        origin.now = origin.state().due();
        origin.on_timer(origin.now);
        ++did;
        for (const ChildRequest& request : std::exchange(origin.open, {})) {
            ++did;
            origin.on_reply(request.id, reply_of(request, coll::SubtreeReply::Kind::partial),
                            origin.now);
        }
    }
    REQUIRE(did > 3 * Origin::n);
    origin.check_visited(did);
    origin.cancel(fail(Code::cancelled, "enough"));
    REQUIRE(origin.cancelled == Origin::n - 1);
    REQUIRE(origin.is_done);
}

}  // namespace
}  // namespace weft::coll_child_requests_test
