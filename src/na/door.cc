#include "na/door.h"

namespace weft::na {

Door::Door(DoorParts parts)
    : parts_(std::move(parts)),
      has_started_(parts_.contexts == 1),
      members_(std::make_unique<Member[]>(parts_.contexts)),
      placement_(parts_.contexts, parts_.incarnation, parts_.peers_max,
                 [this](std::uint16_t context, TimePoint now) { return load_of(context, now); }) {
    WEFT_ASSERT(parts_.contexts == 1 || parts_.post);
}

Door::Member& Door::member(std::uint16_t context) const {
    WEFT_ASSERT(context < parts_.contexts);
    return members_[context];
}

ContextLoad Door::load_of(std::uint16_t context, TimePoint now) const {
    ContextLoad load = parts_.load_of ? parts_.load_of(context, now) : ContextLoad();
    const Member& of = member(context);
    if (of.passing != 0 && of.taken_at.load() + blocked_after < now) load.is_blocked = true;
    return load;
}

std::uint16_t Door::acceptor_before(std::uint16_t context, TimePoint now) const {
    auto first = static_cast<std::uint16_t>(context - context % stride());
    while (first < context && load_of(first, now).is_blocked) ++first;
    return first;
}

void Door::enter(std::uint16_t context, Endpoint& endpoint) {
    WEFT_ASSERT(!member(context).endpoint);
    member(context).endpoint = &endpoint;
}

void Door::leave(std::uint16_t context) { member(context).endpoint = nullptr; }

bool Door::pass(std::uint16_t context, TimePoint now, Function<void(Endpoint*)> work) {
    WEFT_ASSERT(work);
    Member& to = member(context);
    const std::uint32_t before = to.passing.fetch_add(1);
    if (before == 0) to.taken_at = now;
    if (before < passing_max) {
        try {
            parts_.post(context, [door = shared_from_this(), context, now,
                                  work = std::move(work)]() mutable {
                Member& here = door->member(context);
                here.taken_at = now;
                --here.passing;
                work(here.endpoint);
            });
            return true;
        } catch (const std::bad_alloc&) {
        }
    }
    --to.passing;
    return false;
}

void Door::probe(std::uint16_t context, TimePoint now) {
    const Member& to = member(context);
    if (to.passing != 0 || to.taken_at.load() + probe_interval > now) return;
    (void)pass(context, now, [](Endpoint*) {});
}

bool AcceptDuty::look(TimePoint now) {
    if (!door_->has_started()) {
        look_at_ = now + start_interval;
        return false;
    }
    look_at_ = door_->is_first(context_) ? never : now + look_interval;
    const std::uint16_t acceptor = door_->acceptor_before(context_, now);
    const bool is_own = acceptor == context_;
    if (!is_own) door_->probe(acceptor, now);
    return std::exchange(is_on_, is_own) != is_own;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): providers with doors keep the parts.
Result<std::shared_ptr<Door>> Provider::open_door(const Address&, DoorParts, TimePoint) {
    return std::shared_ptr<Door>();
}

}  // namespace weft::na
