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

// ---- operations of a group ----------------------------------------------------------------------

// Options with copies of their rank sets: a token may start the collective after the caller's sets
// are destroyed.
class StoredOptions {
  public:
    StoredOptions(const GroupCallOptions& options) : options_(options) {
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
    StoredOptions options;

    template <class AnyGroup>
    CollectiveId start(const AnyGroup& group, GroupCompletion&& done) const {
        return group.collective(method, body.writer(), options.get(), std::move(done));
    }
};

struct ScatterWork {
    MethodId method;
    Bodies bodies;
    StoredOptions options;

    template <class AnyGroup>
    CollectiveId start(const AnyGroup& group, GroupCompletion&& done) const {
        return group.scatter(method, bodies.views(), options.get(), std::move(done));
    }
};

// ---- cancellation and initiation ----------------------------------------------------------------

// The slot's handler for a collective. It is stored before the collective begins, because the
// collective may end on another thread at once. The collective's own method may run inside the
// start and emit the signal: the cancellation is then sent as soon as the id is known.
template <class AnyGroup>
struct CancelsCollective {
    struct Started {
        const AnyGroup group;
        CollectiveId id = 0;  // 0 until the start returns, and after a refused start.
        bool is_cancelled = false;

        void cancel() {
            is_cancelled = true;
            if (id != 0) group.cancel(id);  // A stale id is harmless.
        }
        void set_id(CollectiveId value) {
            id = value;
            if (is_cancelled) cancel();
        }
    };
    std::shared_ptr<Started> started;

    void operator()(boost::asio::cancellation_type type) const {
        if (type != boost::asio::cancellation_type::none) started->cancel();
    }
};

// For boost::asio::async_initiate.
template <class Result>
struct LaunchCollective {
    template <class Handler, class AnyGroup, class Work>
    void operator()(Handler&& handler, const AnyGroup& group, Work&& work) const {
        using Waiter = AsioOperation<std::decay_t<Handler>, ReadGroup<Result>, AnyGroup>;
        using Cancels = CancelsCollective<AnyGroup>;
        std::shared_ptr<typename Cancels::Started> started;
        if (auto slot = boost::asio::get_associated_cancellation_slot(handler);
            slot.is_connected()) {
            started = std::make_shared<typename Cancels::Started>(typename Cancels::Started{group});
            slot.template emplace<Cancels>(Cancels{started});
        }
        const InitiationScope scope;
        CompletionTicket<Waiter> ticket(
            *Waiter::make(std::decay_t<Handler>(std::forward<Handler>(handler)), group));
        const CollectiveId id = work.start(
            group, [ticket = std::move(ticket), wanted = PolicyCheck(work.options.get())](
                       GroupOutcome outcome) mutable { ticket(std::move(outcome), wanted); });
        if (started) started->set_id(id);
    }
};

}  // namespace weft::detail
