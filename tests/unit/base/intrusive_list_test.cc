#include "base/intrusive_list.h"

#include <vector>

#include "support/catch.h"

using namespace weft;
using base::IntrusiveList;
using base::ListNode;

namespace {

struct Item : ListNode {
    int value = 0;
};

std::vector<int> values(IntrusiveList<Item>& list) {
    std::vector<int> seen;
    list.for_each([&](Item& item) { seen.push_back(item.value); });
    return seen;
}

struct Fixture {
    Item items[5];
    IntrusiveList<Item> list, other;

    Fixture() {
        for (int i = 0; i < 5; ++i) items[i].value = i;
    }
    ~Fixture() {
        while (list.pop_front()) {
        }
        while (other.pop_front()) {
        }
    }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a list returns its entries in order and is empty afterwards") {
    CHECK(list.empty());
    CHECK(list.front() == nullptr);
    CHECK(list.back() == nullptr);
    CHECK(list.pop_front() == nullptr);
    for (Item& item : items) list.push_back(item);
    CHECK(values(list) == std::vector{0, 1, 2, 3, 4});
    CHECK(list.front() == &items[0]);
    CHECK(list.back() == &items[4]);
    for (Item& item : items) CHECK(list.pop_front() == &item);
    CHECK(list.empty());
    CHECK_FALSE(items[0].is_linked());
}

TEST_CASE_METHOD(Fixture, "an entry may be unlinked from anywhere and pushed again at either end") {
    for (Item& item : items) list.push_back(item);
    items[2].unlink();
    CHECK_FALSE(items[2].is_linked());
    items[0].unlink();
    items[4].unlink();
    CHECK(values(list) == std::vector{1, 3});
    list.push_back(items[2]);
    list.push_front(items[4]);
    CHECK(values(list) == std::vector{4, 1, 3, 2});
}

TEST_CASE_METHOD(Fixture, "for_each() may unlink the current entry") {
    for (Item& item : items) list.push_back(item);
    list.for_each([](Item& item) {
        if (item.value % 2 == 0) item.unlink();
    });
    CHECK(values(list) == std::vector{1, 3});
}

TEST_CASE_METHOD(Fixture, "splice_back() appends all entries of the other list in order") {
    list.splice_back(other);
    CHECK(list.empty());
    other.push_back(items[0]);
    other.push_back(items[1]);
    list.splice_back(other);
    CHECK(other.empty());
    CHECK(values(list) == std::vector{0, 1});
    other.push_back(items[2]);
    list.splice_back(other);
    CHECK(values(list) == std::vector{0, 1, 2});
    items[1].unlink();
    CHECK(values(list) == std::vector{0, 2});
    // The emptied list is usable.
    other.push_back(items[1]);
    CHECK(values(other) == std::vector{1});
}
