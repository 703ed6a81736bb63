// The additional allocations of a completion token, compared with a plain callback.
#include <weft/asio.h>
#include <boost/asio.hpp>

#include "alloc/counting_new.h"
#include "support/echo.h"

using namespace weft;
namespace asio = boost::asio;
using echo::v1::EchoReply;
using echo::v1::EchoRequest;
using test::allocations;
using test::EchoPair;
using test::request_of;

namespace {

constexpr int warm_up = 100, counted = 1000;

// Allocations of `counted` calls, each started by `start`, which increments `completed` at its end.
template <class Start>
std::uint64_t count(EchoPair& pair, const int& completed, Start start) {
    std::uint64_t before = 0;
    const int first = completed;
    for (int i = 0; i < warm_up + counted; ++i) {
        if (i == warm_up) before = allocations();
        const int now = completed;
        start();
        if (!pair.rig.run_until([&] { return completed > now; })) break;
    }
    CHECK(completed - first == warm_up + counted);
    return allocations() - before;
}

struct AsioCosts : EchoPair {
    asio::io_context io{1};
    const EchoRequest request = request_of("a text that does not fit into a small string object");
    int completed = 0;

    std::uint64_t of_callback() {
        return count(*this, completed, [&] {
            stub().Hasty(request, {}, [this](const Status& status, const EchoReply&) {
                completed += status.ok();
            });
        });
    }
    // Counts inside the io_context, as AsioDriver runs it.
    template <class Start>
    std::uint64_t inside(Start start) {
        std::uint64_t made = 0;
        asio::post(io, [&] { made = count(*this, completed, start); });
        io.restart();
        io.run();
        return made;
    }
};

}  // namespace

TEST_CASE("asio: a handler costs no allocation") {
    AsioCosts costs;
    const std::uint64_t callback = costs.of_callback();
    const auto handler = [&](const Result<EchoReply>& reply) { costs.completed += reply.ok(); };
    CHECK(costs.inside([&] {
        costs.stub().Hasty(costs.request, {}, asio::bind_executor(costs.io, handler));
    }) == callback);
    CHECK(costs.inside([&] { costs.stub().Hasty(costs.request, {}, handler); }) == callback);
}

TEST_CASE("asio: an awaited call allocates only the copy of its request") {
    AsioCosts costs;
    const std::uint64_t callback = costs.of_callback();
    std::uint64_t made = 0;
    asio::co_spawn(
        costs.io,
        [&]() -> asio::awaitable<void> {
            for (int i = 0; i < warm_up + counted; ++i) {
                if (i == warm_up) made = allocations();
                const auto reply =
                    co_await costs.stub().Hasty(costs.request, {}, asio::use_awaitable);
                costs.completed += reply.ok();
            }
            made = allocations() - made;
        },
        asio::detached);
    costs.completed = 0;
    asio::post(costs.io,
               [&] { costs.rig.run_until([&] { return costs.completed == warm_up + counted; }); });
    costs.io.restart();
    costs.io.run();
    CHECK(costs.completed == warm_up + counted);
    CHECK(made <= callback + counted);
}
