#include "core/remote_scopes.h"

#include <algorithm>
#include <vector>

#include "support/catch.h"

using namespace weft;
using namespace weft::core;

namespace {

using Remote = RemoteScopes::Remote;

// Opens `count` scopes of each context, with serials that rise by `step`.
std::vector<Remote*> open_many(RemoteScopes& scopes, std::uint64_t contexts, std::uint64_t count,
                               std::uint64_t step) {
    std::vector<Remote*> open;
    for (std::uint64_t i = 1; i <= count; ++i) {
        for (std::uint64_t context = 1; context <= contexts; ++context)
            open.push_back(&scopes.open({context, i * step}, never));
    }
    return open;
}

}  // namespace

TEST_CASE("remote scopes: a cancel costs the same however many submissions are open") {
    for (const std::uint64_t contexts : {1, 3}) {
        for (const std::uint64_t step : {1, 2, 3, 63, 64, 4096}) {
            CAPTURE(contexts, step);
            RemoteScopes scopes;
            const std::vector<Remote*> open = open_many(scopes, contexts, 20'000, step);
            std::size_t compared = 0;
            for (Remote* const one : open) compared += scopes.cancel(one->key);
            CHECK(compared <= open.size() * 8 * contexts);
            CHECK(
                std::ranges::all_of(open, [](const Remote* one) { return one->scope.cancelled; }));
        }
    }
}

TEST_CASE("remote scopes: a cancel reaches the open scope of its key, and no other") {
    RemoteScopes scopes;
    CHECK(scopes.cancel({1, 1}) == 0);
    const std::vector<Remote*> open = open_many(scopes, 2, 100, 1);
    scopes.cancel({2, 50});
    for (const Remote* const one : open)
        CHECK(one->scope.cancelled == (one->key == RemoteScopes::Key{2, 50}));
    scopes.cancel({3, 50});
    scopes.cancel({1, 101});
    CHECK(std::ranges::count_if(open, [](const Remote* one) { return one->scope.cancelled; }) == 1);
    for (Remote* const one : open) scopes.close(*one);
    for (const Remote* const one : open) scopes.cancel(one->key);  // They have ended.
    CHECK(std::ranges::none_of(open, [](const Remote* one) { return one->scope.cancelled; }));
    // Their memory is used again.
    const std::vector<Remote*> again = open_many(scopes, 2, 100, 1);
    CHECK(scopes.made() == open.size());
    scopes.cancel({1, 7});
    CHECK(std::ranges::count_if(again, [](const Remote* one) { return one->scope.cancelled; }) ==
          1);
}
