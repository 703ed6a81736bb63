// Several endpoints of one context.
#include "base/log.h"
#include "base/manual_clock.h"
#include "base/random.h"
#include "core/context.h"
#include "support/catch.h"

using namespace weft;

namespace {

// Counts its polls; a busy endpoint has an event at each poll.
class Stub final : public na::Endpoint {
  public:
    Stub(bool busy, int& polls) : busy_(busy), polls_(polls) {}

    std::string_view scheme() const override { return "stub"; }
    std::string address() const override { return "stub://"; }
    na::Caps caps() const override { return {}; }
    const na::Limits& limits() const override { return limits_; }
    Result<na::PeerId> connect(const na::Address&, TimePoint) override {
        return fail(Code::unimplemented, "a stub");
    }
    const na::PeerInfo* info(na::PeerId) const override { return nullptr; }
    void close(na::PeerId) override {}
    std::string error() const override { return {}; }
    std::byte* reserve(na::PeerId, std::size_t) noexcept override { return nullptr; }
    bool commit(std::size_t) noexcept override { return false; }
    void flush() noexcept override {}
    std::size_t unsent(na::PeerId) const override { return 0; }
    std::size_t poll(std::span<na::Event> events, TimePoint) noexcept override {
        ++polls_;
        if (!busy_) return 0;
        events[0] = {};
        events[0].kind = na::EventKind::writable;  // Of no peer.
        return 1;
    }
    Result<na::FabricKey> expose(const na::Exposure&) override {
        return fail(Code::unimplemented, "a stub");
    }
    void fence(std::uint32_t, na::Holders) override {}
    std::size_t post(std::span<const na::RmaItem>) noexcept override { return 0; }

  private:
    const bool busy_;
    int& polls_;
    na::Limits limits_;
};

}  // namespace

TEST_CASE("an idle endpoint is polled in each turn when a busy one makes turns long") {
    base::ManualClock clock;
    base::SeededRandom random(1);
    base::Log log(LogLevel::off);
    core::Context context(clock, random, log, {}, nullptr);
    int busy = 0, idle = 0;
    context.add_endpoint(std::make_unique<Stub>(true, busy));
    context.add_endpoint(std::make_unique<Stub>(false, idle));
    const auto turn = [&](Duration takes) {
        (void)context.turn(clock.now());
        clock.advance(takes);
    };
    for (int i = 0; i < 1000; ++i) turn(1us);
    CHECK(busy == 1000);
    CHECK(idle < 100);
    const int before = idle;
    for (int i = 0; i < 100; ++i) turn(2ms);
    CHECK(idle - before >= 99);
    context.shutdown(fail(Code::cancelled, "the end"));
}
