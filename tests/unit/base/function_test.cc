#include <weft/callback.h>
#include <weft/function.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "support/catch.h"

using namespace weft;

namespace {

// Counts live instances, to check that each is destroyed once.
struct Counted {
    static inline int alive = 0;
    static inline int moves = 0;
    Counted() { ++alive; }
    Counted(const Counted&) { ++alive; }
    Counted(Counted&&) noexcept {
        ++alive;
        ++moves;
    }
    ~Counted() { --alive; }
};

struct Large {
    std::array<char, 200> bytes{};
};

struct ThrowsWhenMoved {
    ThrowsWhenMoved() = default;
    ThrowsWhenMoved(ThrowsWhenMoved&&) noexcept(false) {}
    ThrowsWhenMoved(const ThrowsWhenMoved&) {}
};

}  // namespace

TEST_CASE("an empty function converts to false") {
    Function<void()> empty;
    CHECK_FALSE(empty);
    Function<void()> null(nullptr);
    CHECK_FALSE(null);
    empty.reset();
    Function<void()> moved(std::move(empty));
    CHECK_FALSE(moved);
}

TEST_CASE("a function calls its closure with arguments and result") {
    int calls = 0;
    Function<int(int, int)> add = [&calls](int a, int b) { return ++calls, a + b; };
    REQUIRE(add);
    CHECK(add(2, 3) == 5);
    CHECK(add(4, 5) == 9);
    CHECK(calls == 2);
    Function<std::string(std::string)> echo = [](std::string text) { return text + "!"; };
    CHECK(echo("a long text that does not fit into a string's own room") ==
          "a long text that does not fit into a string's own room!");
}

TEST_CASE("a function forwards references and move-only arguments") {
    Function<int(std::unique_ptr<int>)> take = [](std::unique_ptr<int> value) { return *value; };
    CHECK(take(std::make_unique<int>(4)) == 4);
    Function<void(int&)> change = [](int& value) { value = 9; };
    int value = 1;
    change(value);
    CHECK(value == 9);
    Function<int&(int&)> same = [](int& it) -> int& { return it; };
    CHECK(&same(value) == &value);
}

TEST_CASE("a mutable closure keeps its state, also when moved") {
    Function<int()> count = [n = 0]() mutable { return ++n; };
    CHECK(count() == 1);
    Function<int()> moved = std::move(count);
    CHECK(moved() == 2);
    CHECK_FALSE(count);
}

TEST_CASE("closures in place and on the heap are destroyed exactly once") {
    Counted::alive = 0;
    {
        Function<void()> small = [counted = Counted()] {};
        Function<void()> large = [counted = Counted(), large = Large()] {};
        CHECK(Counted::alive == 2);
        Function<void()> moved_small = std::move(small);
        const int before = Counted::moves;
        Function<void()> moved_large = std::move(large);
        CHECK(Counted::moves == before);  // On the heap: only the pointer moves.
        CHECK(Counted::alive == 2);
        moved_small = std::move(moved_large);
        CHECK(Counted::alive == 1);
        moved_small.reset();
        CHECK(Counted::alive == 0);
        moved_small.reset();
        small = [counted = Counted()] {};
        CHECK(Counted::alive == 1);
        small = nullptr;
        CHECK(Counted::alive == 0);
    }
    CHECK(Counted::alive == 0);
}

TEST_CASE("a function moved onto itself is unchanged") {
    Function<int()> seven = [] { return 7; };
    Function<int()>& same = seven;
    seven = std::move(same);
    REQUIRE(seven);
    CHECK(seven() == 7);
}

TEST_CASE("a function never throws when moved: closures that may throw live on the heap") {
    static_assert(std::is_nothrow_move_constructible_v<Function<void()>>);
    static_assert(!std::is_copy_constructible_v<Function<void()>>);
    Function<int()> odd = [odd = ThrowsWhenMoved()] { return 5; };
    Function<int()> moved = std::move(odd);
    CHECK(moved() == 5);
}

TEST_CASE("a function fits 48 bytes of capture without the heap") {
    static_assert(sizeof(Function<void()>) <= 64);
    std::array<char, 48> bytes{};
    bytes[47] = 'x';
    Function<const void*()> inside = [bytes]() -> const void* { return &bytes; };
    const auto* at = static_cast<const char*>(inside());
    const auto* begin = reinterpret_cast<const char*>(&inside);
    CHECK((at >= begin && at < begin + sizeof inside));
    std::array<char, 49> more{};
    Function<const void*()> outside = [more]() -> const void* { return &more; };
    at = static_cast<const char*>(outside());
    begin = reinterpret_cast<const char*>(&outside);
    CHECK_FALSE((at >= begin && at < begin + sizeof outside));
}

TEST_CASE("a function of void discards its closure's result") {
    int calls = 0;
    Function<void(int)> small = [&calls](int by) { return calls += by; };
    small(2);
    CHECK(calls == 2);
    Function<void(int)> large = [&calls, room = Large()](int by) {
        return calls += by + room.bytes[0];
    };
    large(3);
    large.consume(4);
    CHECK(calls == 9);
    Function<void(int)> owner = [&calls, by = std::make_unique<int>(5)](int) {
        return std::make_unique<int>(calls += *by);
    };
    owner.consume(0);
    CHECK(calls == 14);
    const Callback<void(int)> kept = [&calls](int by) { return calls += by; };
    const Callback<void(int)> copy = kept;
    copy(6);
    CHECK(calls == 20);
    CHECK_FALSE(Callback<void(int)>(nullptr));
}

TEST_CASE("a function aligns its closure") {
    struct alignas(64) Line {
        std::array<char, 64> bytes{};
    };
    bool is_aligned = false;
    Function<void()> look = [&is_aligned, line = Line()] {
        is_aligned = reinterpret_cast<std::uintptr_t>(&line) % 64 == 0;
    };
    Function<void()> moved = std::move(look);
    moved();
    CHECK(is_aligned);
}
