// How <weft/asio.h> starts and cancels operations of a channel.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/cancellation_type.hpp>

#include <weft/asio/operation.h>
#include <weft/channel.h>
#include <weft/posting.h>

namespace weft::detail {

// A request's body. It refers to the caller's bytes until it is moved or copied, and owns its bytes
// from then on. A token that starts the operation later (deferred, use_awaitable) moves or copies
// it.
class Body {
  public:
    explicit Body(const BodyWriter& writer) : writer_(writer) {}
    Body(const Body& other) : own_(other.bytes()), writer_(BodyWriter::of(own_)) {}
    // It allocates where it copies the caller's bytes.
    Body(Body&& other)  // NOLINT(performance-noexcept-move-constructor)
        : own_(other.is_own() ? std::move(other.own_) : other.bytes()),
          writer_(BodyWriter::of(own_)) {}
    Body& operator=(const Body&) = delete;
    ~Body() = default;

    const BodyWriter& writer() const { return writer_; }
    std::size_t size() const { return writer_.bytes; }

  private:
    bool is_own() const { return !writer_.write && writer_.object == own_.data(); }
    std::vector<std::byte> bytes() const {
        std::vector<std::byte> copy(writer_.bytes);
        writer_(copy.data());
        return copy;
    }

    std::vector<std::byte> own_;
    BodyWriter writer_;
};

// ---- operations of a channel -------------------------------------------------------------------

struct CallWork {
    MethodId method;
    Body body;
    CallOptions options;

    std::size_t bytes() const { return body.size(); }
    // A copy: the operation may start after the caller's reference is destroyed.
    std::optional<RegionRef> inline_bulk =
        options.inline_bulk ? std::optional(*options.inline_bulk) : std::nullopt;

    OperationId start(const Channel& channel, Completion&& done) const {
        CallOptions with = options;
        if (inline_bulk) with.inline_bulk = &*inline_bulk;
        return channel.call_with(method, body.writer(), with, std::move(done));
    }
    static void cancel(const Channel& channel, OperationId id) { channel.cancel_call(id); }
    template <class Done>
    static void refuse(Done& done, const Status& why) {
        done(why, ByteView());
    }
};

struct TransferWork {
    bool put;
    RegionRef remote;
    std::uint64_t offset;
    Buffer local;
    CallOptions options;

    static std::size_t bytes() { return 0; }
    OperationId start(const Channel& channel, TransferCompletion&& done) const {
        const auto begin = put ? &Channel::put : &Channel::get;
        return (channel.*begin)(remote, offset, local, options, std::move(done));
    }
    static void cancel(const Channel& channel, OperationId id) { channel.cancel_transfer(id); }
    template <class Done>
    static void refuse(Done& done, const Status& why) {
        done(why);
    }
};

// ---- cancellation ------------------------------------------------------------------------------

// The slot's handler for an operation that has an id. A stale id is harmless.
template <class Work>
struct Cancels {
    Channel channel;
    OperationId id;

    void operator()(boost::asio::cancellation_type type) const {
        if (type == boost::asio::cancellation_type::none) return;
        if (channel.on_thread()) return Work::cancel(channel, id);
        channel.executor().post([channel = channel, id = id] { Work::cancel(channel, id); });
    }
};

// The slot's handler for an operation that is posted to the channel's thread and gets its id there.
template <class Work>
struct CancelsOnThread {
    struct Started {
        const Channel channel;
        // Where it starts. The signal may be emitted in a turn of another context of the runtime,
        // where Channel::executor() is another one.
        Executor& executor;
        OperationId id;  // The executor's thread only.
    };
    std::shared_ptr<Started> started;

    void operator()(boost::asio::cancellation_type type) const {
        if (type == boost::asio::cancellation_type::none) return;
        started->executor.post(
            [started = started] { Work::cancel(started->channel, started->id); });
    }
};

template <class Slot, class Work, class Done>
void launch_on_thread(Slot slot, const Channel& channel, Work&& work, Done done) {
    if (Status full = Posting::admit(channel, work.bytes()); !full.ok())
        return work.refuse(done, full);
    using Cancel = CancelsOnThread<std::decay_t<Work>>;
    auto started = std::make_shared<typename Cancel::Started>(
        typename Cancel::Started{channel, channel.executor(), OperationId()});
    // Before the post: the operation may complete before post() returns.
    slot.template emplace<Cancel>(Cancel{started});
    // Not in the capture, where the order of evaluation is unspecified.
    const auto deadline = Posting::deadline(channel, work.options);
    started->executor.post(
        [started, deadline, work = std::forward<Work>(work), done = std::move(done)]() mutable {
            Posting::release(started->channel, work.bytes());
            work.options = Posting::until(started->channel, deadline, work.options);
            started->id = work.start(started->channel, std::move(done));
        });
}

template <class Slot, class Work, class Done>
void launch(Slot slot, const Channel& channel, Work&& work, Done done) {
    const InitiationScope scope;
    if (!slot.is_connected()) {
        work.start(channel, std::move(done));
    } else if (!channel.on_thread()) {
        launch_on_thread(slot, channel, std::forward<Work>(work), std::move(done));
    } else if (const OperationId id = work.start(channel, std::move(done)); id.generation != 0) {
        // The operation is in flight, and completes on this thread, so not before this.
        slot.template emplace<Cancels<std::decay_t<Work>>>(
            Cancels<std::decay_t<Work>>{channel, id});
    }
}

// ---- initiations, for boost::asio::async_initiate ---------------------------------------------

template <class Read>
struct Launch {
    template <class Handler, class Work>
    void operator()(Handler&& handler, const Channel& channel, Work&& work) const {
        using Waiter = AsioOperation<std::decay_t<Handler>, Read, Channel>;
        const auto slot = boost::asio::get_associated_cancellation_slot(handler);
        launch(slot, channel, std::forward<Work>(work),
               CompletionTicket<Waiter>(
                   *Waiter::make(std::decay_t<Handler>(std::forward<Handler>(handler)), channel)));
    }
};

}  // namespace weft::detail
