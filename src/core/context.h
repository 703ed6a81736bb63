// One thread's domain: its endpoints, peers, frames, timers and submissions.
//
// A context owns no thread. turn(now) runs everything that is due and returns; a driver
// (core/driver.h), a simulation or a test calls it. The turning thread calls all other functions,
// too, except those marked for any thread.
//
// Back-pressure: a frame that the transport refuses waits in its peer's FIFO, bounded by
// ContextOptions; a frame that does not fit is refused at once. Nothing else buffers frames.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/executor.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/figures.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/random.h"
#include "core/after_end.h"
#include "core/context_registration.h"
#include "core/frame_router.h"
#include "core/inherited_scope.h"
#include "core/kept_services.h"
#include "core/offload_pool.h"
#include "core/peer_table.h"
#include "core/remote_scopes.h"
#include "core/submissions.h"
#include "core/thread_ownership.h"
#include "core/turn_loop.h"
#include "core/waker.h"

namespace weft::core {

// What one turn did, for the driver.
struct Turn {
    std::uint32_t events = 0;
};

// The ids of a channel's operations name their context, because each context counts its own.
struct OperationTag {
    static constexpr unsigned shift = 25;
    static std::uint32_t bits(std::uint16_t member) { return std::uint32_t{member} << shift; }
    static std::uint16_t member(std::uint32_t slot) {
        return static_cast<std::uint16_t>(slot >> shift);
    }
    // Dense, within the context.
    static std::uint32_t index(std::uint32_t slot) { return slot & ((1u << shift) - 1); }
};

class Context final : public Executor, public ThreadOwnership, private FrameSink {
  public:
    Context(base::Clock& clock, base::Random& random, base::Log& log,
            const ContextOptions& options = {}, OffloadPool* pool = nullptr);
    ~Context();

    // ---- composition -------------------------------------------------------------------------
    EndpointSlot& add_endpoint(std::unique_ptr<na::Endpoint> endpoint) {
        return loop_.add_endpoint(std::move(endpoint));
    }
    const std::vector<std::unique_ptr<EndpointSlot>>& endpoints() const {
        return loop_.endpoints();
    }
    // Sets the receiver of frames of a kind.
    void set_sink(FrameKind kind, FrameSink& sink) { router_.set_sink(kind, sink); }
    // Adds an observer of peers, besides the sinks.
    void watch_peers(FrameSink& watcher) { router_.watch(watcher); }
    // `opener` adds an endpoint for an address that no endpoint can reach, or returns why it can't.
    void set_opener(Function<Status(const na::Address&)> opener) {
        peers_.set_opener(std::move(opener));
    }
    void set_rma_sink(RmaSink& sink) { router_.set_rma_sink(sink); }

    // Closes every connection in order and notifies the sinks with `why`. No peer connects again;
    // turns continue, for the fences of regions and while has_lingering_connections().
    void shutdown(const Status& why) noexcept { peers_.shutdown(why); }
    // After shutdown(): destroys the endpoints. Requires: not called from turn(), which walks them.
    void close_endpoints() noexcept;
    // After the last turn. From this call on post() runs its work at once (after-end work), on the
    // calling thread or on a thread that already runs such work, one at a time. Work that posts
    // itself for ever is dropped.
    void close_submissions();
    // After close_submissions(): no thread is woken any more. An owner of this keeps no descriptor
    // then.
    void close_wake_fd() {
        WEFT_DCHECK(has_ended());
        waker_.close();
    }
    // The owner of this context: kept alive during after-end work, which may release it.
    void set_owner(std::weak_ptr<void> owner) { after_end_.set_owner(std::move(owner)); }
    std::shared_ptr<Executor> share() { return {after_end_.owner(), this}; }
    KeptServices& services() { return services_; }
    bool is_closed() const { return peers_.is_closed(); }
    // After close_submissions().
    bool has_ended() const { return submissions_.is_closed(); }

    // ---- in a child made by fork(): after on_forked() endpoints send and receive nothing -------
    void on_forked() noexcept;  // Takes no lock.
    bool is_forked() const { return loop_.is_forked(); }
    // FAILED_PRECONDITION, effect none; OK where is_forked() is false.
    Status why_forked() const;

    // ---- scopes: the operations of a call ------------------------------------------------------
    // nullptr: an operation that is started now belongs to no call.
    CallScope* scope() const { return scope_ && scope_->is_open() ? scope_ : nullptr; }
    // A cheap check before scope(): true if there may be a scope.
    bool may_have_scope() const { return scope_ != nullptr; }
    // The deadline of the scope of this thread's context; `never` without one.
    static TimePoint inherited_deadline();
    // The limit of this thread's context; the default on a thread in no context.
    static std::size_t parsed_bytes_max() {
        const Context* const here = innermost();
        return here ? here->options_.parsed_bytes_max : ContextOptions().parsed_bytes_max;
    }
    // The scopes that stand here for those of other contexts.
    RemoteScopes& remote_scopes() { return remote_scopes_; }
    std::uint64_t next_serial() { return ++last_serial_; }  // Of submissions from here.
    // For handlers, which run in no outer scope.
    void enter_scope(CallScope& scope) {
        WEFT_DCHECK(scope.is_open());
        scope_ = &scope;
    }
    void leave_scope() { scope_ = nullptr; }
    // While it lives, the context is in `scope` (nullptr: in none); afterwards in the previous
    // scope, unless that has ended.
    class ScopeGuard {
      public:
        ScopeGuard(Context& context, CallScope* scope)
            : context_(context), outer_(context.scope()) {
            WEFT_DCHECK(!scope || scope->is_open());
            if (outer_) outer_generation_ = outer_->generation;
            context.scope_ = scope;
        }
        ScopeGuard(const ScopeGuard&) = delete;
        ScopeGuard& operator=(const ScopeGuard&) = delete;
        ~ScopeGuard() {
            const bool is_outer_open = outer_ && outer_->generation == outer_generation_;
            context_.scope_ = is_outer_open ? outer_ : nullptr;
        }

      private:
        Context& context_;
        CallScope* const outer_;
        std::uint32_t outer_generation_ = 0;
    };

    // ---- the turn ----------------------------------------------------------------------------
    // An exception of a callback ends the program: half a batch would be lost.
    Turn turn(TimePoint now) noexcept;
    // The instant of the current or last turn.
    TimePoint now() const { return loop_.now(); }
    // The context that this thread is in a turn of, the innermost one; nullptr: none.
    static Context* innermost() { return static_cast<Context*>(current_); }
    // Whether this thread is in a turn of this context.
    bool in_turn() const { return current_ == this; }
    // The same, or in a turn of another context that is nested in a turn of this one.
    bool is_entered() const { return is_in(*this); }
    // Between turns, before an operation: sets now() to the current time. Thread: the context's.
    TimePoint refresh_time() {
        request_turn();
        return loop_.set_now(clock_.now());
    }
    // Between turns, after a change that may need a turn (a message to flush, an earlier deadline):
    // wakes the event loop that waits since arm(). Thread: the context's.
    void request_turn() { waker_.request(); }
    // now() in a turn, else the clock's time, since now() may be long past. Thread: any.
    TimePoint current_time() const { return in_turn() ? now() : clock_.now(); }
    // Without arrivals there is nothing to do before this instant.
    TimePoint next_deadline() const { return loop_.next_deadline(); }
    // Whether work waits for the next turn, besides timers and arrivals.
    bool has_work() const { return !submissions_.empty() || loop_.has_work(); }
    // True: the thread may sleep on the endpoints' descriptors and wake_fd(), until the next turn.
    // Any later post(), message or turn makes one of them readable.
    bool arm();
    int wake_fd() const { return waker_.fd(); }  // Readable after wake(), until disarm().
    void disarm();

    // ---- from any thread ---------------------------------------------------------------------
    void post(Function<void()> work) override;
    // The same without an allocation: `submission` stays in place until it is finished.
    void post(Submission& submission);
    void offload(Function<void()> work) override;
    void wake() { waker_.wake(); }
    static constexpr std::size_t submission_overhead_bytes = core::submission_overhead_bytes;
    // Reserves `bytes` for operations submitted by other threads, until release(). False: no room
    // now.
    bool admit(std::size_t bytes) { return submissions_.admit(bytes); }
    void release(std::size_t bytes) { submissions_.release(bytes); }
    // The same, released by the destructor at the latest.
    class Admission {
      public:
        Admission() = default;
        Admission(Context& context, std::size_t bytes)
            : context_(context.admit(bytes) ? &context : nullptr), bytes_(bytes) {}
        Admission(Admission&& other) noexcept
            : context_(std::exchange(other.context_, nullptr)), bytes_(other.bytes_) {}
        Admission& operator=(Admission&& other) noexcept {
            release();
            context_ = std::exchange(other.context_, nullptr);
            bytes_ = other.bytes_;
            return *this;
        }
        ~Admission() { release(); }
        explicit operator bool() const { return context_ != nullptr; }
        void release() {
            if (Context* const context = std::exchange(context_, nullptr)) context->release(bytes_);
        }

      private:
        Context* context_ = nullptr;
        std::size_t bytes_ = 0;
    };
    std::size_t submitted_bytes_max() const { return submissions_.bytes_max(); }
    // INVALID_ARGUMENT for a size that is never admitted, else RESOURCE_EXHAUSTED.
    Status why_not_admitted(std::size_t bytes) const {
        return submissions_.why_not_admitted(bytes);
    }

    // ---- peers -------------------------------------------------------------------------------
    // A peer with these addresses, of which AddressSelector chooses one; connects with the first
    // frame. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE (after shutdown()).
    Result<PeerRef> add_peer(std::vector<na::Address> addresses, WantedContext wanted = {}) {
        return peers_.add(std::move(addresses), wanted);
    }
    // Connections that peers of add_peer() have had so far: unchanged, their `remote` is, too.
    std::uint64_t connects() const { return peers_.connects(); }
    // Why a peer is missing that add_peer() had no room for.
    Status why_no_peer() const { return peers_.why_full(); }
    static bool is_valid(PeerRef ref) { return find(ref) != nullptr; }
    // The same for a ref that is not empty.
    static bool is_current(PeerRef ref) { return PeerTable::is_current(ref); }
    static Peer* find(PeerRef ref) { return PeerTable::find(ref); }
    // Closes the peer's connection and notifies every sink. A peer of add_peer() may be used again.
    void drop_connection(Peer& peer, const Status& why) { peers_.drop_connection(peer, why); }
    // Removes a peer: closes its connection in order, notifies every sink.
    void remove_peer(Peer& peer, const Status& why) { peers_.remove(peer, why); }
    // Starts connecting an idle peer; the result is reported in a later turn.
    void connect(Peer& peer) {
        WEFT_DCHECK(!is_on_other_thread());
        peers_.connect(peer);
        defer(peer.deferred_connect);
    }
    // Why a connecting peer is not up yet; empty: unknown.
    static std::string why_waiting(const Peer& peer);
    // The peer sent malformed bytes: its connection is closed once the current callback returns.
    void close_malformed(Peer& peer, std::string_view reason);
    // The same for a peer that sent nothing malformed: a frame that it needs can't be sent.
    void fail_connection(Peer& peer, Status why) { router_.fail(peer.ref, std::move(why)); }
    // Adds or drops a reason to monitor whether the peer is alive.
    void add_interest(Peer& peer) {
        WEFT_DCHECK(!is_on_other_thread() && is_valid(peer.ref));
        peers_.add_interest(peer);
    }
    void drop_interest(Peer& peer) {
        WEFT_DCHECK(peer.interest != 0);
        --peer.interest;
    }
    // A silent peer times out after this time at the latest.
    Duration peer_timeout() const { return peers_.liveness().peer_timeout(); }

    // ---- frames ------------------------------------------------------------------------------
    // The fast path of a call: room in the transport's memory, to be committed at once. Requires: a
    // body below peer.direct_body_end. nullptr: no room now, use claim().
    std::byte* reserve(Peer& peer, std::size_t bytes) {
        WEFT_DCHECK(peer.state == PeerState::up && peer.queue.frames == 0);
        WEFT_DCHECK(bytes <= peer.message_bytes_max);
        return peer.endpoint->endpoint->reserve(peer.na_id, bytes);
    }
    // Copies a large body to the end of the reserved room, or into memory that a peer reads.
    // Requires: up.
    void copy_out(Peer& peer, std::byte* to, ByteView body) {
        WEFT_DCHECK(peer.state == PeerState::up);
        peer.endpoint->endpoint->copy_out(to, body);
    }
    void commit(Peer& peer, std::size_t bytes) {
        WEFT_DCHECK(peer.state == PeerState::up && bytes <= peer.message_bytes_max);
        peer.endpoint->commit(bytes);
    }

    // Room for one frame of exactly `bytes` (head included, to be written by the caller): in the
    // transport's memory, or in the peer's FIFO. Commit it before the next claim.
    struct Claim {
        std::byte* data = nullptr;  // nullptr: refused, the FIFO is full, or no memory is left.
        QueuedFrame* queued = nullptr;
    };
    Claim claim(Peer& peer, std::size_t bytes) {
        WEFT_DCHECK(bytes >= sizeof(FrameHead) && !is_on_other_thread());
        if (peer.state == PeerState::up && peer.queue.frames == 0 &&
            bytes <= peer.message_bytes_max) [[likely]] {
            if (std::byte* data = reserve(peer, bytes)) [[likely]] {
                return {data, nullptr};
            }
        }
        QueuedFrame* const queued = peers_.queues().claim(peer, bytes);
        return {queued ? queued->frame().data() : nullptr, queued};
    }
    // The bounds of the FIFOs.
    const SendQueues& queues() const { return peers_.queues(); }
    void commit(Peer& peer, const Claim& claim, std::size_t bytes) {
        WEFT_DCHECK(claim.data);
        if (!claim.queued) [[likely]] {
            commit(peer, bytes);
        } else {
            commit_queued(peer, claim, bytes);
        }
    }
    // The same for a frame that may wait for later frames of this turn.
    void commit_later(Peer& peer, const Claim& claim, std::size_t bytes) {
        WEFT_DCHECK(claim.data);
        if (claim.queued) return commit_queued(peer, claim, bytes);
        WEFT_DCHECK(peer.state == PeerState::up && bytes <= peer.message_bytes_max);
        EndpointSlot& slot = *peer.endpoint;
        slot.unflushed |= slot.endpoint->commit_later(bytes);
    }
    // Takes a frame out of its peer's FIFO and destroys it.
    void drop(Peer& peer, QueuedFrame& queued) { peers_.queues().drop(peer, queued); }

    // ---- time --------------------------------------------------------------------------------
    base::TimerWheel& timers() { return loop_.timers(); }
    base::Random& random() { return random_; }
    base::Log& log() { return log_; }
    // For notable events, not for events of every call.
    void record_event(const char* what, std::string_view subject, std::uint64_t number = 0) {
        recorder_.record(now(), what, subject, number);
    }
    const base::FlightRecorder& recorder() const { return recorder_; }
    // Readable text: endpoints and peers.
    std::string state(std::size_t lines_max);
    base::Figures figures() const;
    // Connections that are up. Thread: any.
    std::uint32_t connections() const { return peers_.connections(); }
    base::Clock& clock() { return clock_; }

    // Requires: not linked. Runs in the next turn; after the last one, as post() does.
    void defer(Deferred& work) {
        WEFT_DCHECK(!is_on_other_thread());
        loop_.defer(work);
        request_turn();
        if (has_ended()) [[unlikely]]
            after_end_.run_deferred();
    }
    // Requires: not linked. Runs in the first turn after shutdown(), unless it is undeferred
    // before.
    void defer_to_end(Deferred& work) { loop_.defer_to_end(work); }
    void undefer(Deferred& work) { work.undefer(); }

    struct Counters {
        std::uint64_t frames_queued = 0;
        std::uint64_t malformed_peers = 0;
        std::uint64_t timed_out_peers = 0;
    };
    Counters counters() const {
        return {queues().pushed(), malformed_peers_, peers_.liveness().timed_out()};
    }
    // As Liveness::undelivered(), of all peers.
    std::uint64_t undelivered() { return peers_.undelivered(); }
    // In the FIFOs of all peers. Cost: a walk over all peers.
    std::uint64_t waiting_frames();
    std::size_t waiting_bytes() const { return queues().bytes(); }
    // The last frames are in flight.
    bool has_lingering_connections() const { return peers_.has_lingering_connections(); }
    AfterEnd& after_end() { return after_end_; }
    const AfterEnd& after_end() const { return after_end_; }

  private:
    // Receives pings, and frame kinds without a sink.
    void on_frame(Peer& peer, FrameHead head, ByteView frame) override;

    void commit_queued(Peer& peer, const Claim& claim, std::size_t bytes);
    std::uint32_t run_submissions();
    void run_offloaded(Function<void()>& work);
    std::uint32_t poll_endpoint(EndpointSlot& slot);
    std::uint32_t turn_with_work(TimePoint now);
    Turn turn_nested(TimePoint now);
    void detect_backlog(bool is_cut);
    void on_message(Peer& peer, const std::byte* message, std::size_t bytes);
    void on_frames(Peer& peer, ByteView message);
    void on_other_event(EndpointSlot& slot, const na::Event& event);
    void close_failed_peer();

    // ---- constant
    base::Clock& clock_;
    base::Random& random_;
    base::Log& log_;
    const ContextOptions options_;
    OffloadPool* const pool_;

    // ---- of the context's thread
    TurnLoop loop_;
    FrameRouter router_;
    CallScope* scope_ = nullptr;  // It may have ended.
    RemoteScopes remote_scopes_;
    std::uint64_t last_serial_ = 0;
    base::FlightRecorder recorder_;
    PeerTable peers_;
    std::uint64_t malformed_peers_ = 0;
    bool armed_ = false;  // And no turn since.
    bool has_logged_slow_ = false;

    // ---- of any thread
    Submissions submissions_;
    AfterEnd after_end_;
    KeptServices services_;
    Waker waker_;
    ContextRegistration registration_{*this};
};

// Logs that `thrown` (null: nothing) left the code that `text` names; to the log of the context, or
// without one to standard error. Thread: the context's.
void log_thrown(Context* context, std::string text, const std::exception_ptr& thrown) noexcept;

}  // namespace weft::core
