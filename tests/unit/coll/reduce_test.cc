// Merging of replies: each operation on each type of number.
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "coll/reduce.h"
#include "support/catch.h"

using namespace weft;

namespace coll_reduce {

using Operation = Reduction::Operation;
using Number = Reduction::Number;

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& numbers) {
    std::vector<std::byte> bytes(numbers.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
}

template <class T>
std::vector<T> merged(Operation operation, Number number, const std::vector<T>& a,
                      const std::vector<T>& b) {
    std::vector<std::byte> into = bytes_of(a);
    REQUIRE(coll::Merge{{operation, number, false}, nullptr}(into, bytes_of(b)).ok());
    std::vector<T> numbers(into.size() / sizeof(T));
    if (!into.empty()) std::memcpy(numbers.data(), into.data(), into.size());
    return numbers;
}

Status take(std::vector<std::byte>& into, ByteView from) {
    into.assign(from.begin(), from.end());
    return {};
}

TEST_CASE("reduce: unsigned numbers wrap round") {
    using U = std::vector<std::uint64_t>;
    const std::uint64_t most = ~std::uint64_t{0};
    const U a{1, most, 0, std::uint64_t{1} << 63}, b{2, 1, most, std::uint64_t{1} << 63};
    CHECK(merged(Operation::sum, Number::u64, a, b) == U{3, 0, most, 0});
    CHECK(merged(Operation::min, Number::u64, a, b) == U{1, 1, 0, std::uint64_t{1} << 63});
    CHECK(merged(Operation::max, Number::u64, a, b) == U{2, most, most, std::uint64_t{1} << 63});
    CHECK(merged(Operation::bit_and, Number::u64, a, b) == U{0, 1, 0, std::uint64_t{1} << 63});
    CHECK(merged(Operation::bit_or, Number::u64, a, b) == U{3, most, most, std::uint64_t{1} << 63});
}

TEST_CASE("reduce: signed numbers wrap round") {
    using I = std::vector<std::int64_t>;
    constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    const I a{-1, most, least, 5}, b{1, 1, -1, -7};
    CHECK(merged(Operation::sum, Number::i64, a, b) == I{0, least, most, -2});
    CHECK(merged(Operation::min, Number::i64, a, b) == I{-1, 1, least, -7});
    CHECK(merged(Operation::max, Number::i64, a, b) == I{1, most, -1, 5});
    CHECK(merged(Operation::bit_and, Number::i64, a, b) == I{1, 1, least, 5 & -7});
    CHECK(merged(Operation::bit_or, Number::i64, a, b) == I{-1, most, -1, 5 | -7});
}

TEST_CASE("reduce: floating point numbers merge by sum, minimum and maximum") {
    using F = std::vector<double>;
    const double inf = std::numeric_limits<double>::infinity();
    const F a{0.5, -inf, 1e300, -0.25}, b{0.25, 1, 1e308, -1};
    CHECK(merged(Operation::sum, Number::f64, a, b) == F{0.75, -inf, 1e300 + 1e308, -1.25});
    CHECK(merged(Operation::min, Number::f64, a, b) == F{0.25, -inf, 1e300, -1});
    CHECK(merged(Operation::max, Number::f64, a, b) == F{0.5, 1, 1e308, -0.25});
    const F overflow = merged(Operation::sum, Number::f64, F{1.7e308}, F{1.7e308});
    CHECK(std::isinf(overflow[0]));
}

// To the bit: the result of a tree does not depend on the order of its replies.
TEST_CASE("reduce: minimum and maximum do not depend on order, also with NaN and signed zeros") {
    using F = std::vector<double>;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double payload = std::nan("77");
    const double inf = std::numeric_limits<double>::infinity();
    const F all{nan, -nan, payload, 0.0, -0.0, 1, -1, inf, -inf};
    for (const Operation operation : {Operation::min, Operation::max}) {
        for (const double a : all) {
            for (const double b : all) {
                INFO(a << " and " << b);
                const F one = merged(operation, Number::f64, F{a}, F{b});
                const F other = merged(operation, Number::f64, F{b}, F{a});
                CHECK(bytes_of(one) == bytes_of(other));
                CHECK(std::isnan(one[0]) == (std::isnan(a) || std::isnan(b)));
                for (const double c : all) {
                    const F left = merged(operation, Number::f64, one, F{c});
                    const F right = merged(operation, Number::f64, F{a},
                                           merged(operation, Number::f64, F{b}, F{c}));
                    CHECK(bytes_of(left) == bytes_of(right));
                }
            }
        }
    }
    CHECK(std::signbit(merged(Operation::min, Number::f64, F{0.0}, F{-0.0})[0]));
    CHECK_FALSE(std::signbit(merged(Operation::max, Number::f64, F{-0.0}, F{0.0})[0]));
}

TEST_CASE("reduce: arrays that do not match are refused and left unchanged") {
    const coll::Merge merge{{Operation::sum, Number::u64, false}, nullptr};
    for (const auto& [into_bytes, from_bytes] :
         {std::pair<std::size_t, std::size_t>{8, 16}, {16, 8}, {0, 8}, {8, 0}, {7, 7}, {12, 12}}) {
        std::vector<std::byte> into(into_bytes, std::byte{1});
        const auto before = into;
        const std::vector<std::byte> from(from_bytes, std::byte{2});
        CHECK(merge(into, from).code() == Code::invalid_argument);
        CHECK(into == before);
    }
    std::vector<std::byte> none;
    CHECK(merge(none, {}).ok());
    CHECK(none.empty());
}

TEST_CASE("reduce: the method's merge function is used when there is one") {
    std::vector<std::byte> into(3);
    const std::vector<std::byte> from(5);
    coll::Merge merge{{Operation::method, Number::u64, false}, nullptr};
    CHECK(merge(into, from).code() == Code::unimplemented);
    merge.function = take;
    CHECK(merge(into, from).ok());
    CHECK(into.size() == 5);
    merge.function = [](std::vector<std::byte>&, ByteView) -> Status {
        throw std::runtime_error("no such item");
    };
    const Status thrown = merge(into, from);
    CHECK(thrown.code() == Code::internal);
    CHECK(thrown.text() == "the merge function (MethodTraits::merge) threw: no such item");
}

TEST_CASE("reduce: a reduction with an invalid operation or number is refused") {
    for (int operation = 0; operation < 256; ++operation) {
        for (int number = 0; number < 256; ++number) {
            const Reduction reduction{static_cast<Operation>(operation),
                                      static_cast<Number>(number), false};
            const bool is_bitwise = operation == static_cast<int>(Operation::bit_and) ||
                                    operation == static_cast<int>(Operation::bit_or);
            const bool fits = operation <= static_cast<int>(Operation::method) && number <= 2 &&
                              !(is_bitwise && number == 2);
            REQUIRE(coll::validate(reduction).ok() == fits);
        }
    }
}

}  // namespace coll_reduce
