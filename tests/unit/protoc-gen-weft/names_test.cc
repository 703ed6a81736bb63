// Names in a .proto that have another meaning in C++ or in generated code.
#include "names.weft.h"
#include "support/catch.h"

using namespace names::v1;

TEST_CASE("a method with a reserved name gets another one in C++ and keeps its own on the wire") {
    CHECK(WordsMethods::delete_3.id.name == "names.v1.Words/delete");
    CHECK(WordsMethods::delete_.id.name == "names.v1.Words/delete_");
    CHECK(WordsMethods::delete_2.id.name == "names.v1.Words/delete_2");
    CHECK(WordsMethods::WordsClient_.id.name == "names.v1.Words/WordsClient");
    CHECK(WordsMethods::weft_channel__.id.name == "names.v1.Words/weft_channel_");
    CHECK(WordsMethods::WeftToken_.id.name == "names.v1.Words/WeftToken");
    CHECK(WordsMethods::major_.id.name == "names.v1.Words/major");
    CHECK(WordsMethods::linux_.id.name == "names.v1.Words/linux");
    CHECK(WordsMethods::signals_.id.name == "names.v1.Words/signals");
    CHECK(WordsMethods::std.id.name == "names.v1.Words/std");
}
