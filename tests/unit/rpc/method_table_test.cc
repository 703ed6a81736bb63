// Methods that are staged: found by no request before they are published.
#include "rpc/method_table.h"

#include <weft/method.h>

#include "support/catch.h"

namespace weft::method_table_test {
namespace {

std::unique_ptr<rpc::Method> method(std::string_view name) {
    return std::make_unique<rpc::Method>(
        name, [](Call) {}, MethodTraits{});
}

template <class... Names>
std::vector<std::unique_ptr<rpc::Method>> methods(Names... names) {
    std::vector<std::unique_ptr<rpc::Method>> all;
    (all.push_back(method(names)), ...);
    return all;
}

bool has(const rpc::MethodTable& table, std::string_view name) {
    return table.find(method_hash(name)) != nullptr;
}

TEST_CASE("methods: those that are staged are found once they are published") {
    rpc::MethodTable table;
    REQUIRE(table.add("t.A/One", [](Call) {}, {}).ok());
    REQUIRE(table.stage(methods("t.B/One", "t.B/Two")).ok());
    CHECK_FALSE(has(table, "t.B/One"));
    // Another one, in between, keeps the room for them.
    for (int i = 0; i < 50; ++i)
        REQUIRE(table.add("t.C/" + std::to_string(i), [](Call) {}, {}).ok());
    CHECK(table.add("t.B/Two", [](Call) {}, {}).code() == Code::already_exists);
    CHECK_FALSE(has(table, "t.B/One"));
    table.publish();
    for (const char* const name : {"t.A/One", "t.B/One", "t.B/Two", "t.C/49"}) {
        CAPTURE(name);
        CHECK(has(table, name));
    }
}

TEST_CASE("methods: those that are dropped may be staged again") {
    rpc::MethodTable table;
    REQUIRE(table.add("t.A/One", [](Call) {}, {}).ok());
    REQUIRE(table.stage(methods("t.B/One")).ok());
    table.drop_staged();
    table.publish();
    CHECK_FALSE(has(table, "t.B/One"));
    CHECK(table.stage(methods("t.B/One", "t.A/One")).code() == Code::already_exists);
    CHECK(table.stage(methods("t.B/One", "t.B/One")).code() == Code::already_exists);
    auto with_empty = methods("t.B/One");
    with_empty.push_back(std::make_unique<rpc::Method>("t.B/Two", RawHandler(), MethodTraits{}));
    CHECK(table.stage(std::move(with_empty)).code() == Code::invalid_argument);
    REQUIRE(table.stage(methods("t.B/One")).ok());
    table.publish();
    CHECK(has(table, "t.B/One"));
}

TEST_CASE("methods: those that are published on a closed table are not found") {
    rpc::MethodTable table;
    REQUIRE(table.stage(methods("t.B/One")).ok());
    table.close();
    table.publish();
    CHECK_FALSE(has(table, "t.B/One"));
}

}  // namespace
}  // namespace weft::method_table_test
