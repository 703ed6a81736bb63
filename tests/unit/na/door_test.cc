// Which contexts accept connections at an address of several.
#include "na/door.h"

#include <array>
#include <deque>
#include <initializer_list>
#include <vector>

#include "support/catch.h"

using namespace weft;
using namespace weft::na;

namespace {

constexpr TimePoint opened{1s};

// The contexts run what is passed to them when the test says so.
struct TestDoor {
    std::uint16_t contexts;
    std::array<bool, 64> blocked{};
    std::deque<std::deque<Function<void()>>> passed{contexts};
    std::shared_ptr<Door> door = std::make_shared<Door>(parts());

    DoorParts parts() {
        DoorParts parts;
        parts.contexts = contexts;
        parts.post = [this](std::uint16_t context, Function<void()> work) {
            passed[context].push_back(std::move(work));
        };
        parts.load_of = [this](std::uint16_t context, TimePoint) {
            return ContextLoad{blocked[context]};
        };
        return parts;
    }
    explicit TestDoor(std::uint16_t count, bool has_started = true) : contexts(count) {
        if (has_started) door->start();
    }
    ~TestDoor() {
        for (std::uint16_t i = 0; i < contexts; ++i) passed[i].clear();
    }
    void block(std::initializer_list<int> which) {
        blocked = {};
        for (const int one : which) blocked[static_cast<std::size_t>(one)] = true;
    }
    std::vector<int> accepting(TimePoint now = opened) const {
        std::vector<int> accept;
        for (std::uint16_t i = 0; i < contexts; ++i) {
            if (!blocked[i] && door->acceptor_before(i, now) == i) accept.push_back(i);
        }
        return accept;
    }
    void turn(std::uint16_t context) {
        while (!passed[context].empty()) {
            passed[context].front()();
            passed[context].pop_front();
        }
    }
};

}  // namespace

TEST_CASE("door: four contexts at most accept, and each blocked one is replaced in its group") {
    using Contexts = std::vector<int>;
    TestDoor three{3}, sixteen{16};
    CHECK(three.accepting() == Contexts{0, 1, 2});
    CHECK(sixteen.accepting() == Contexts{0, 4, 8, 12});
    sixteen.block({0, 4, 8, 12});
    CHECK(sixteen.accepting() == Contexts{1, 5, 9, 13});
    sixteen.block({0, 1, 2, 5, 12});
    CHECK(sixteen.accepting() == Contexts{3, 4, 8, 13});
    sixteen.block({4, 5, 6, 7});  // A whole group: the others go on.
    CHECK(sixteen.accepting() == Contexts{0, 8, 12});
    CHECK(sixteen.door->accepting_share(64) == 16);
    TestDoor most{64};
    CHECK(most.accepting() == Contexts{0, 16, 32, 48});
    TestDoor five{5};
    five.block({0, 4});
    CHECK(five.accepting() == Contexts{1, 2});
}

TEST_CASE("door: the first context of a group always accepts, and never looks at the others") {
    TestDoor eight{8};
    AcceptDuty first(*eight.door, 2);
    CHECK(first.is_on());
    CHECK(first.next_deadline() == never);
    eight.block({0, 1, 2});
    CHECK_FALSE(first.serve(opened + 1h));
    CHECK(first.is_on());
    CHECK(AcceptDuty().is_on());
}

TEST_CASE("door: no context accepts before the door starts, and all that shall do so soon after") {
    TestDoor eight{8, false};
    AcceptDuty first(*eight.door, 0), second(*eight.door, 1);
    TimePoint now = opened;
    for (int i = 0; i < 5; ++i) {
        CHECK_FALSE(first.serve(now));
        CHECK_FALSE(second.serve(now));
        CHECK_FALSE(first.is_on());
        CHECK(first.next_deadline() > now);
        now = first.next_deadline();
        CHECK(now <= opened + 10ms);
    }
    eight.door->start();
    CHECK(first.serve(now));
    CHECK(first.is_on());
    CHECK(first.next_deadline() == never);
    CHECK_FALSE(second.serve(now));
    CHECK_FALSE(second.is_on());
    TestDoor alone{1, false};
    CHECK(AcceptDuty(*alone.door, 0).is_on());
}

TEST_CASE("door: a context stands in for a blocked one until that is not blocked any more") {
    TestDoor eight{8};
    AcceptDuty second(*eight.door, 1);
    CHECK_FALSE(second.is_on());
    CHECK(second.next_deadline() <= opened);
    CHECK_FALSE(second.serve(opened));
    eight.turn(0);
    TimePoint now = second.next_deadline();
    CHECK(now == opened + 500ms);
    eight.block({0});
    CHECK_FALSE(second.serve(now - 1ns));
    CHECK(second.serve(now));
    CHECK(second.is_on());
    CHECK_FALSE(second.serve(second.next_deadline()));
    CHECK(second.is_on());
    eight.block({});
    now = second.next_deadline();
    CHECK(second.serve(now));
    CHECK_FALSE(second.is_on());
}

// As those that a program turns: nothing is known of them but what is passed to them.
TEST_CASE("door: a context of unknown load that takes nothing for a second is replaced") {
    TestDoor eight{8};
    AcceptDuty second(*eight.door, 1);
    CHECK_FALSE(second.serve(opened));
    CHECK(eight.passed[0].size() == 1);
    CHECK_FALSE(second.serve(opened + 500ms));
    CHECK_FALSE(second.serve(opened + 1s));
    CHECK(second.serve(opened + 1500ms));
    CHECK(second.is_on());
    CHECK(eight.passed[0].size() == 1);  // It is not flooded.
    eight.turn(0);
    CHECK(second.serve(opened + 2s));
    CHECK_FALSE(second.is_on());
    // As long as it turns, it goes on.
    for (int i = 5; i < 100; ++i) {
        eight.turn(0);
        CHECK_FALSE(second.serve(opened + i * 500ms));
    }
    for (std::uint16_t k = 1; k < 8; ++k) CHECK(eight.passed[k].empty());
}
