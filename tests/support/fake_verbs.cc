#include "support/fake_verbs.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "leaks/live_memory.h"
#include "support/catch.h"
#include "support/fake_verbs_world.h"

namespace weft::test {
namespace fake {

Bell::Bell() : fd_(::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) {}
Bell::~Bell() { ::close(fd_); }

void Bell::ring() const {
    const std::uint64_t one = 1;
    (void)!::write(fd_, &one, sizeof one);
}

bool Bell::take() const {
    std::uint64_t one = 0;
    return ::read(fd_, &one, sizeof one) == sizeof one;
}

void Bell::take_back() const {
    pollfd watched{fd_, POLLIN, 0};
    if (::poll(&watched, 1, 0) == 1) (void)take();
}

World::World() {
    for (int i = 0; i < 2; ++i) {
        const std::string name = "fake" + std::to_string(i);
        std::strcpy(devices[i].name, name.c_str());
        devices[i].node_type = IBV_NODE_CA;
        devices[i].transport_type = IBV_TRANSPORT_IB;
    }
}

World& world() {
    static World* const only = new World;  // Never destroyed: endpoints may still use it at exit.
    return *only;
}

static std::ptrdiff_t heap_bytes() {
    const LiveMemory live = live_memory();
    return live.bytes + live.large_bytes;
}

Entry::Entry() : lock_(world().mutex), before_(heap_bytes()) { ++world().entries; }
Entry::~Entry() { world().own_bytes += heap_bytes() - before_; }

void complain(const std::string& what) { world().complaints.push_back(what); }

void complain_if(bool is_wrong, const std::string& what) {
    if (is_wrong) complain(what);
}

int card_of(const ibv_context* context) {
    const auto& all = world().contexts;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (&all[i]->context == context) return static_cast<int>(i);
    }
    return -1;
}

bool is_starved(const ibv_context* context) {
    return card_of(context) == world().faults.starved_card;
}

}  // namespace fake

using fake::Entry;
using fake::world;

FakeVerbs::FakeVerbs(FakeLimits limits) {
    REQUIRE(counts() == FakeCounts{});
    set_limits(limits);
    const Entry entry;
    world().faults = {};
    world().complaints.clear();
}

FakeVerbs::~FakeVerbs() {
    const Entry entry;
    world().limits = {};
    world().faults = {};
}

void FakeVerbs::set_limits(const FakeLimits& limits) {
    const Entry entry;
    world().limits = limits;
    for (ibv_device& device : world().devices) {
        device.transport_type = limits.is_iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
    }
}

FakeCounts FakeVerbs::counts() const {
    const Entry entry;
    return world().counts;
}

std::vector<std::string> FakeVerbs::complaints() const {
    const Entry entry;
    return world().complaints;
}

std::ptrdiff_t FakeVerbs::own_bytes() {
    const Entry entry;
    return world().own_bytes;
}

std::uint64_t FakeVerbs::entries() const {
    const Entry entry;
    return world().entries;
}

// The maximum over the queue pairs of the device.
template <class Of>
static std::size_t most(int card, Of of) {
    std::size_t most = 0;
    for (const auto& [number, pair] : world().pairs) {
        if (fake::card_of(pair->context) == card) most = std::max(most, of(*pair));
    }
    return most;
}

static fake::Queue& queue_of(const fake::Pair& pair) {
    return static_cast<fake::Queue&>(*pair.recv_cq);
}

std::size_t FakeVerbs::fullest_queue(int card) const {
    const Entry entry;
    return most(card, [](const fake::Pair& pair) { return queue_of(pair).fullest; });
}

std::size_t FakeVerbs::queue_room(int card) const {
    const Entry entry;
    return most(
        card, [](const fake::Pair& pair) { return static_cast<std::size_t>(queue_of(pair).cqe); });
}

std::size_t FakeVerbs::receives_posted(int card) const {
    const Entry entry;
    return most(card, [](const fake::Pair& pair) {
        return pair.srq ? static_cast<fake::Shared&>(*pair.srq).receives.size() : 0;
    });
}

void FakeVerbs::fail_registration(int error, int after) {
    const Entry entry;
    world().faults.registration_error = error;
    world().faults.registrations_before = after;
}

void FakeVerbs::fail_deregistrations(int error, int times) {
    const Entry entry;
    world().faults.deregistration_error = error;
    world().faults.deregistrations = times;
}

void FakeVerbs::fail_destroys(int error, int times) {
    const Entry entry;
    world().faults.destroy_error = error;
    world().faults.destroys = times;
}

void FakeVerbs::refuse_posts(int error, int times, int card) {
    const Entry entry;
    world().faults.refusal_error = error;
    world().faults.refusals = times;
    world().faults.refusal_card = card;
}

void FakeVerbs::end_next_work(FakeLane lane, ibv_wc_status status, int card) {
    const Entry entry;
    world().faults.work.push_back({lane, status, card});
}

void FakeVerbs::cut() {
    const Entry entry;
    world().faults.is_cut = true;
}

void FakeVerbs::cut_cm() {
    const Entry entry;
    world().faults.is_cm_cut = true;
}

void FakeVerbs::pass(Duration time) {
    const Entry entry;
    fake::expire_stalled(time);
}

void FakeVerbs::expire() {
    const Entry entry;
    fake::expire_stalled(std::chrono::hours(1));
    fake::cm_expire();
}

void FakeVerbs::restore() {
    const Entry entry;
    world().faults.is_cut = world().faults.is_cm_cut = false;
    fake::cm_restore();
    fake::advance_stalled();
}

void FakeVerbs::limit_memory(int card) {
    const Entry entry;
    world().faults.starved_card = card;
}

void FakeVerbs::feed() {
    const Entry entry;
    world().faults.starved_card = fake::Faults{}.starved_card;
    fake::advance_stalled();
}

static void tell_all(ibv_event_type what) {
    for (fake::Context* context : world().contexts) {
        ibv_async_event event{};
        event.event_type = what;
        event.element.port_num = 1;
        fake::tell(&context->context, event);
    }
}

void FakeVerbs::break_device() {
    const Entry entry;
    world().faults.is_broken = true;
    tell_all(IBV_EVENT_DEVICE_FATAL);
}

void FakeVerbs::overflow(int card) {
    const Entry entry;
    for (const auto& [number, pair] : world().pairs) {
        if (fake::card_of(pair->context) != card || queue_of(*pair).is_lost) continue;
        fake::lose(queue_of(*pair));
    }
}

std::size_t FakeVerbs::locked_bytes() const {
    const Entry entry;
    return world().locked_bytes;
}

std::uint64_t FakeVerbs::registrations() const {
    const Entry entry;
    return world().registrations;
}

std::uint64_t FakeVerbs::deregistrations() const {
    const Entry entry;
    return world().deregistrations;
}

void FakeVerbs::remove_device() {
    const Entry entry;
    fake::cm_remove_device();
}

void FakeVerbs::set_port(bool up) {
    const Entry entry;
    world().faults.is_port_down = !up;
    tell_all(up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

void FakeVerbs::make_stale(int times) {
    const Entry entry;
    world().faults.stale = times;
}

void FakeVerbs::name_rejections(int status) {
    const Entry entry;
    world().faults.rejection = status;
}

void FakeVerbs::fail_migrations(int times) {
    const Entry entry;
    world().faults.migrations = times;
}

void FakeVerbs::lose_route(int times) {
    const Entry entry;
    world().faults.routes = times;
}

}  // namespace weft::test
