// Inputs that arrive while a StateDriver carries out an earlier one.
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/stepped_state.h"

using namespace weft;

namespace coll_state_driver {

constexpr TimePoint start = TimePoint{} + 1h;

std::shared_ptr<const coll::Plan> plan() {
    auto made = std::make_shared<coll::Plan>();
    const GroupView view =
        GroupView::make("g", 1, {{0, {"sim://a"}}, {1, {"sim://b"}}, {2, {"sim://c"}}}).value();
    made->rank_order =
        std::make_shared<coll::RankOrder>(coll::RankOrder::Params{view, {}, 0, false});
    return made;
}

coll::CollectiveState::Role role_of(std::uint32_t first, std::uint32_t end) {
    coll::CollectiveState::Role role;
    role.subtree = {first, end};
    return role;
}

// Notes its effects, and answers one of them at once.
struct Inner final : test::SteppedState {
    enum class Within { nothing, method_ends, method_cancels, send_fails };

    Inner(coll::CollectiveState::Role role, Within within)
        : SteppedState(plan(), role), within_(within) {}

    void send_request(const coll::ChildRequest& request) override {
        effects.push_back("send");
        if (within_ == Within::send_fails)
            on_failure(request.id, fail(Code::unavailable, "gone"), start);
    }
    void run_method() override {
        effects.push_back("run");
        if (within_ == Within::method_ends) on_method_done();
        if (within_ == Within::method_cancels) cancel(fail(Code::cancelled, "by the handler"));
    }
    void cancel_request(const coll::Ready::Cancel&) override { effects.push_back("cancel"); }
    void cancel_method() override { effects.push_back("cancel method"); }
    void reply(const coll::Ready::Reply&) override { effects.push_back("reply"); }
    void on_done() override { effects.push_back("done"); }

    std::vector<std::string> effects;

  private:
    const Within within_;
};

using Effects = std::vector<std::string>;

TEST_CASE("state driver: a method that completes in place ends its collective after the effects") {
    Inner leaf(role_of(2, 3), Inner::Within::method_ends);
    leaf.on_request(1, 0, start + 1h);
    leaf.begin(start);
    CHECK(leaf.effects == Effects{"run", "reply", "done"});
    CHECK(leaf.state().is_done());
}

TEST_CASE("state driver: a cancel within an effect is carried out after the other effects, once") {
    Inner inner(role_of(1, 3), Inner::Within::method_cancels);
    inner.on_request(1, 0, start + 1h);
    inner.begin(start);
    REQUIRE(inner.state().is_done());
    CHECK(inner.effects == Effects{"send", "run", "cancel", "cancel method", "reply", "done"});
}

TEST_CASE("state driver: a request that fails in place does not keep the method from running") {
    Inner inner(role_of(1, 3), Inner::Within::send_fails);
    inner.begin(start);
    CHECK_FALSE(inner.state().is_done());
    REQUIRE(inner.effects.size() >= 2);
    CHECK(inner.effects[0] == "send");
    CHECK(inner.effects[1] == "run");
    inner.on_method_done();
    inner.cancel(fail(Code::cancelled, "by the test"));
    CHECK(inner.effects.back() == "done");
}

}  // namespace coll_state_driver
