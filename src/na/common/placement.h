// Which context of a listening runtime gets a connection. One for each listener, shared by the
// contexts.
//
// A client that names a context, or has a session there, gets that one. Any other connection goes
// to the context with the fewest connections: of several such ones to the one that follows from the
// client, so that the same client finds the same context again, unless another one is much less
// busy; then to the least busy, or a random one. A blocked context gets only clients that name it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <weft/result.h>
#include <weft/time.h>

#include "base/assert.h"
#include "base/random.h"
#include "na/provider.h"

namespace weft::na {

// What a context has to do.
struct ContextLoad {
    bool is_blocked = false;       // A handler, or the system, has kept its thread for long.
    std::uint32_t busy_share = 0;  // Of its time, in thousandths.
};

// Thread: any, for all functions. Concurrent placements may each miss the other's connection.
class Placement {
  public:
    // Thread: any. Empty: nothing is known of the contexts.
    using LoadOf = std::function<ContextLoad(std::uint16_t context, TimePoint now)>;
    // `own`: of the listener's endpoints. All contexts have at most `peers_max` connections
    // together; the clients that name one context get at most half of these, if there are several
    // contexts.
    Placement(std::uint16_t contexts, const Incarnation& own, std::uint32_t peers_max,
              LoadOf load_of = {});
    ~Placement() { WEFT_ASSERT(all_connections() == 0); }
    Placement(const Placement&) = delete;
    Placement& operator=(const Placement&) = delete;

    // A connection's place in the count of its context, until it is destroyed or moved from. The
    // Placement outlives it.
    class Place {
      public:
        Place() = default;
        Place(Place&& other) noexcept
            : of_(std::exchange(other.of_, nullptr)),
              context_(other.context_),
              is_named_(other.is_named_) {}
        Place& operator=(Place&& other) noexcept {
            if (this != &other) {
                leave();
                of_ = std::exchange(other.of_, nullptr);
                context_ = other.context_;
                is_named_ = other.is_named_;
            }
            return *this;
        }
        ~Place() { leave(); }
        std::uint16_t context() const { return context_; }
        explicit operator bool() const { return of_ != nullptr; }

      private:
        friend class Placement;
        Place(Placement& of, std::uint16_t context, bool is_named)
            : of_(&of), context_(context), is_named_(is_named) {}
        void leave();

        Placement* of_ = nullptr;
        std::uint16_t context_ = 0;
        bool is_named_ = false;
    };

    // Of a hello.
    struct Client {
        Incarnation incarnation;
        std::uint16_t context = 0;
        std::uint16_t wanted = 0;  // Hello::wanted.
    };
    // Errors: RESOURCE_EXHAUSTED: too many connections, or too many clients that name the context.
    Result<Place> place(const Client& client, TimePoint now, base::Random& random);

    std::uint16_t contexts() const { return contexts_; }
    std::uint32_t connections(std::uint16_t context) const { return count(context).connections; }

  private:
    // A cache line, and the neighbour that a processor fetches with it.
    struct alignas(128) Count {
        std::atomic<std::uint32_t> connections{0};
        std::atomic<std::uint32_t> named{0};  // Of these, the ones that named it.
    };
    const Count& count(std::uint16_t context) const {
        WEFT_ASSERT(context < contexts_);
        return counts_[context];
    }
    Count& count(std::uint16_t context) {
        WEFT_ASSERT(context < contexts_);
        return counts_[context];
    }
    std::uint32_t all_connections() const;
    std::uint16_t choose(const Client& client, TimePoint now, base::Random& random) const;

    const std::uint16_t contexts_;
    const Incarnation own_;
    const std::uint32_t peers_max_;
    const std::uint32_t named_max_;
    const LoadOf load_of_;
    const std::unique_ptr<Count[]> counts_;
};

}  // namespace weft::na
