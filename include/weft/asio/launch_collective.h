// How <weft/asio.h> starts and cancels collectives.
#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/cancellation_type.hpp>

#include <weft/asio/launch.h>
#include <weft/asio/operation.h>
#include <weft/group.h>
#include <weft/protobuf_group.h>

namespace weft::detail {

// ---- what can be started on a group -------------------------------------------------------------

// With the sets that they name: a token may start it when the caller's are gone.
class KeptOptions {
  public:
    KeptOptions(const GroupCallOptions& options) : options_(options) {
        if (options.include) include_ = *options.include;
        if (options.exclude) exclude_ = *options.exclude;
    }
    GroupCallOptions get() const {
        GroupCallOptions options = options_;
        options.include = include_ ? &*include_ : nullptr;
        options.exclude = exclude_ ? &*exclude_ : nullptr;
        return options;
    }

  private:
    GroupCallOptions options_;
    std::optional<RankSet> include_;
    std::optional<RankSet> exclude_;
};

struct CollectiveWork {
    MethodId method;
    Body body;
    KeptOptions options;

    template <class AnyGroup>
    CollectiveId start(const AnyGroup& group, GroupCompletion&& done) const {
        return group.collective(method, body.writer(), options.get(), std::move(done));
    }
};

struct ScatterWork {
    MethodId method;
    Bodies bodies;
    KeptOptions options;

    template <class AnyGroup>
    CollectiveId start(const AnyGroup& group, GroupCompletion&& done) const {
        return group.scatter(method, bodies.views(), options.get(), std::move(done));
    }
};

// ---- cancellation and initiation ----------------------------------------------------------------

// What a slot does with a collective. It fills the slot before the collective begins, which may end
// on another thread at once, and whose method may run here and emit the signal: then it is
// cancelled when it has begun.
template <class AnyGroup>
struct CancelsCollective {
    struct Begun {
        const AnyGroup group;
        CollectiveId id = 0;  // Until it has begun, and where it is refused.
        bool is_cancelled = false;

        void cancel() {
            is_cancelled = true;
            if (id != 0) group.cancel(id);  // A stale id is harmless.
        }
        void begin(CollectiveId as) {
            id = as;
            if (is_cancelled) cancel();
        }
    };
    std::shared_ptr<Begun> begun;

    void operator()(boost::asio::cancellation_type type) const {
        if (type != boost::asio::cancellation_type::none) begun->cancel();
    }
};

// For boost::asio::async_initiate.
template <class Result>
struct LaunchCollective {
    template <class Handler, class AnyGroup, class Work>
    void operator()(Handler&& handler, const AnyGroup& group, Work&& work) const {
        using Waiter = AsioOperation<std::decay_t<Handler>, ReadGroup<Result>, AnyGroup>;
        using Cancels = CancelsCollective<AnyGroup>;
        std::shared_ptr<typename Cancels::Begun> begun;
        if (auto slot = boost::asio::get_associated_cancellation_slot(handler);
            slot.is_connected()) {
            begun = std::make_shared<typename Cancels::Begun>(typename Cancels::Begun{group});
            slot.template emplace<Cancels>(Cancels{begun});
        }
        const Starting scope;
        Ticket<Waiter> ticket(
            *Waiter::make(std::decay_t<Handler>(std::forward<Handler>(handler)), group));
        const CollectiveId id = work.start(
            group, [ticket = std::move(ticket), wanted = Wanted(work.options.get())](
                       GroupOutcome outcome) mutable { ticket(std::move(outcome), wanted); });
        if (begun) begun->begin(id);
    }
};

}  // namespace weft::detail
