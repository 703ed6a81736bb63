// One thread's domain: its endpoints, peers, frames, timers and submissions.
//
// A context owns no thread. turn(now) runs everything that is due and returns; a driver
// (core/driver.h), a simulation or a test calls it. The turning thread calls all other functions,
// too, except those marked for any thread.
//
// Back-pressure: a frame that the transport refuses waits in its peer's FIFO, bounded by
// ContextOptions; a frame that does not fit is refused at once. Nothing else buffers frames.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/executor.h>

#include "base/clock.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/mpsc_queue.h"
#include "base/random.h"
#include "base/unique_fd.h"
#include "core/call_scope.h"
#include "core/context_options.h"
#include "core/context_registration.h"
#include "core/deferred.h"
#include "core/frame.h"
#include "core/lingering_connections.h"
#include "core/offload_pool.h"
#include "core/sinks.h"
#include "core/thread_ownership.h"

namespace weft::core {

// Sets of endpoints are kept as bits (bulk/regions.h).
inline constexpr std::size_t endpoints_max = 64;

struct EndpointSlot {
    std::unique_ptr<na::Endpoint> endpoint;
    na::Caps caps;
    std::vector<Peer*> peers;  // By na::PeerId::index.
    std::uint32_t index = 0;
    std::uint32_t idle_polls = 0;
    TimePoint polled_at;                         // With several endpoints.
    bool unflushed = false;                      // A commit of this turn waits for flush().
    na::Endpoint* parent_endpoint = nullptr;     // In a forked child; never destroyed.
    base::IntrusiveList<Traffic> chunk_waiters;  // Peers that take turns while there is no room.
};

inline constexpr Duration backlog_max = 20ms, long_turn = 5ms;
inline constexpr std::size_t many_events = 8;

// What one turn did, for the driver.
struct Turn {
    std::uint32_t events = 0;
};

class Context final : public Executor, public ThreadOwnership {
  public:
    Context(base::Clock& clock, base::Random& random, base::Log& log, ContextOptions options = {},
            OffloadPool* pool = nullptr);
    ~Context();

    // ---- composition -------------------------------------------------------------------------
    EndpointSlot& add_endpoint(std::unique_ptr<na::Endpoint> endpoint);
    const std::vector<std::unique_ptr<EndpointSlot>>& endpoints() const { return endpoints_; }
    // Sets the receiver of frames of a kind.
    void set_sink(FrameKind kind, FrameSink& sink);
    // Adds an observer of peers, besides the sinks.
    void watch_peers(FrameSink& watcher) { all_sinks_.push_back(&watcher); }
    // `opener` adds an endpoint for an address that no endpoint can reach, or returns why it can't.
    void set_opener(Function<Status(const na::Address&)> opener) { opener_ = std::move(opener); }
    void set_rma_sink(RmaSink& sink) { rma_sink_ = &sink; }

    // Closes every connection in order and notifies the sinks with `why`. No peer connects again;
    // turns continue, for the fences of regions and while has_lingering_connections().
    void shutdown(const Status& why) noexcept;
    // After shutdown(): destroys the endpoints. Requires: not called from turn(), which walks them.
    void close_endpoints() noexcept;
    // After the last turn. From this call on post() runs its work at once (after-end work), on the
    // calling thread or on a thread that already runs such work, one at a time. Work that posts
    // itself for ever is dropped.
    void close_submissions();
    // After close_submissions(): no thread is woken any more. An owner of this keeps no descriptor
    // then.
    void close_wake_fd();
    // The owner of this context: kept alive during after-end work, which may release it.
    void set_owner(std::weak_ptr<void> owner) { owner_ = std::move(owner); }
    std::shared_ptr<Executor> share() { return {owner_.lock(), this}; }
    bool is_closed() const { return closed_; }
    // After close_submissions().
    bool has_ended() const { return submissions_closed_.load(std::memory_order_relaxed); }

    // ---- in a child made by fork(): after on_forked() endpoints send and receive nothing -------
    void on_forked() noexcept;  // Takes no lock.
    bool is_forked() const { return is_forked_; }
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
        const auto* const here = static_cast<const Context*>(current_);
        return here ? here->options_.parsed_bytes_max : ContextOptions().parsed_bytes_max;
    }
    // For handlers, which run in no outer scope.
    void enter_scope(CallScope& scope) { scope_ = &scope; }
    void leave_scope() { scope_ = nullptr; }
    // While it lives, the context is in `scope` (nullptr: in none); afterwards in the previous
    // scope, unless that has ended.
    class ScopeGuard {
      public:
        ScopeGuard(Context& context, CallScope* scope)
            : context_(context), outer_(context.scope()) {
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
    TimePoint now() const { return now_; }
    // Whether this thread is in a turn of this context.
    bool in_turn() const { return current_ == this; }
    // The same, or in a turn of another context that is nested in a turn of this one.
    bool is_entered() const { return is_in(*this); }
    // Between turns, before an operation: sets now() to the current time. Thread: the context's.
    TimePoint refresh_time() {
        request_turn();
        return now_ = clock_.now();
    }
    // Between turns, after a change that may need a turn (a message to flush, an earlier deadline):
    // wakes the event loop that waits since arm(). Thread: the context's.
    void request_turn() {
        if (sleeping_.load(std::memory_order_relaxed)) [[unlikely]] {
            wake();
        }
    }
    // now() in a turn, else the clock's time, since now() may be long past. Thread: any.
    TimePoint current_time() const { return in_turn() ? now_ : clock_.now(); }
    // Without arrivals there is nothing to do before this instant.
    TimePoint next_deadline() const;
    // Whether work waits for the next turn, besides timers and arrivals.
    bool has_work() const;
    // True: the thread may sleep on the endpoints' descriptors and wake_fd(), until the next turn.
    // Any later post(), message or turn makes one of them readable.
    bool arm();
    int wake_fd() const { return wake_fd_.get(); }  // Readable after wake(), until disarm().
    void disarm();

    // ---- from any thread ---------------------------------------------------------------------
    void post(Function<void()> work) override;
    void offload(Function<void()> work) override;
    void wake();
    static constexpr std::size_t submission_overhead_bytes = core::submission_overhead_bytes;
    // Reserves `bytes` for operations submitted by other threads, until release(). False: no room
    // now.
    bool admit(std::size_t bytes);
    void release(std::size_t bytes) {
        submitted_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    }
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
    std::size_t submitted_bytes_max() const { return options_.submitted_bytes_max; }
    // INVALID_ARGUMENT for a size that is never admitted, else RESOURCE_EXHAUSTED.
    Status why_not_admitted(std::size_t bytes) const;

    // ---- peers -------------------------------------------------------------------------------
    // A peer with these addresses, of which AddressSelector chooses one; connects with the first
    // frame. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE (after shutdown()).
    Result<PeerRef> add_peer(std::vector<na::Address> addresses);
    static bool is_valid(PeerRef ref) { return ref.at && is_current(ref); }
    // The same for a ref that is not empty.
    static bool is_current(PeerRef ref) {
        return base::SlotTable<Peer>::entry_of(*ref.at).generation == ref.generation;
    }
    static Peer* find(PeerRef ref) { return is_valid(ref) ? ref.at : nullptr; }
    // Closes the peer's connection and notifies every sink. A peer of add_peer() may be used again.
    void drop_connection(Peer& peer, const Status& why);
    // Removes a peer: closes its connection in order, notifies every sink.
    void remove_peer(Peer& peer, const Status& why);
    // Starts connecting an idle peer; the result is reported in a later turn.
    void connect(Peer& peer);
    // Why a connecting peer is not up yet; empty: unknown.
    static std::string why_waiting(const Peer& peer);
    // The peer sent malformed bytes: its connection is closed once the current callback returns.
    void close_malformed(Peer& peer, std::string_view reason);
    // The same for a peer that sent nothing malformed: a frame that it needs can't be sent.
    void fail_connection(Peer& peer, Status why);
    // Adds or drops a reason to monitor whether the peer is alive.
    void add_interest(Peer& peer) {
        ++peer.interest;
        // Continues for a while after the last interest, so it is usually armed.
        if (!peer.heartbeat.is_linked()) [[unlikely]] {
            start_heartbeat(peer);
        }
    }
    void drop_interest(Peer& peer) { --peer.interest; }
    // A silent peer times out after this time at the latest.
    Duration peer_timeout() const {
        return (options_.heartbeats_missed_max + 2) * options_.heartbeat_interval;
    }

    // ---- frames ------------------------------------------------------------------------------
    // The fast path of a call: room in the transport's memory, to be committed at once. Requires: a
    // body below peer.direct_body_end. nullptr: no room now, use claim().
    std::byte* reserve(Peer& peer, std::size_t bytes) {
        return peer.endpoint->endpoint->reserve(peer.na_id, bytes);
    }
    // Copies a large body to the end of the reserved room, or into memory that a peer reads.
    // Requires: up.
    void copy_out(Peer& peer, std::byte* to, ByteView body) {
        peer.endpoint->endpoint->copy_out(to, body);
    }
    void commit(Peer& peer, std::size_t bytes) {
        EndpointSlot& slot = *peer.endpoint;
        slot.unflushed |= slot.endpoint->commit(bytes);
    }

    // Room for one frame of exactly `bytes` (head included, to be written by the caller): in the
    // transport's memory, or in the peer's FIFO. Commit it before the next claim.
    struct Claim {
        std::byte* data = nullptr;  // nullptr: refused, the FIFO is full, or no memory is left.
        QueuedFrame* queued = nullptr;
    };
    Claim claim(Peer& peer, std::size_t bytes) {
        if (peer.state == PeerState::up && peer.waiting_frames == 0 &&
            bytes <= peer.message_bytes_max) [[likely]] {
            if (std::byte* data = reserve(peer, bytes)) [[likely]] {
                return {data, nullptr};
            }
        }
        return claim_queued(peer, bytes);
    }
    // Short frames, which report the outcome of a call or transfer, may queue where others may not.
    static constexpr std::size_t short_frame_bytes = 2048;
    // Whether `bytes` more exceed the FIFO of one peer.
    bool has_full_queue(const Peer& peer, std::size_t bytes) const;
    // Data frames leave room for replies.
    bool has_room_for_data(const Peer& peer) const {
        return peer.waiting_frames < options_.waiting_data_max;
    }
    void commit(Peer& peer, const Claim& claim, std::size_t bytes) {
        if (!claim.queued) [[likely]] {
            commit(peer, bytes);
        } else {
            commit_queued(peer, claim, bytes);
        }
    }
    // The same for a frame that may wait for later frames of this turn.
    void commit_later(Peer& peer, const Claim& claim, std::size_t bytes) {
        if (claim.queued) return commit_queued(peer, claim, bytes);
        EndpointSlot& slot = *peer.endpoint;
        slot.unflushed |= slot.endpoint->commit_later(bytes);
    }
    // Takes a frame out of its peer's FIFO and destroys it.
    void drop(Peer& peer, QueuedFrame& queued);

    // ---- time --------------------------------------------------------------------------------
    base::TimerWheel& timers() { return timers_; }
    base::Random& random() { return random_; }
    base::Log& log() { return log_; }
    // For notable events, not for events of every call.
    void record_event(const char* what, std::string_view subject, std::uint64_t number = 0) {
        recorder_.record(now_, what, subject, number);
    }
    const base::FlightRecorder& recorder() const { return recorder_; }
    // Readable text: endpoints and peers.
    std::string state(std::size_t lines_max);
    base::Clock& clock() { return clock_; }

    // Requires: not linked. Runs in the next turn; after the last one, as post() does.
    void defer(Deferred& work) {
        deferred_.push_back(work);
        set_fast_slot(nullptr);
        request_turn();
        if (has_ended()) [[unlikely]]
            run_deferred_after_end();
    }
    // Requires: not linked. Runs in the first turn after shutdown(), unless it is undeferred
    // before.
    void defer_to_end(Deferred& work) { deferred_to_end_.push_back(work); }
    void undefer(Deferred& work) { work.undefer(); }

    struct Counters {
        std::uint64_t frames_queued = 0;
        std::uint64_t malformed_peers = 0;
        std::uint64_t timed_out_peers = 0;
    };
    const Counters& counters() const { return counters_; }
    // For an orderly end, after the last send: how much may be lost if the endpoints closed now. To
    // be called repeatedly, in turns: it pings the peers over transports that do not report
    // arrival. Cost: a walk over all peers.
    std::uint64_t undelivered();
    // In the FIFOs of all peers. Cost: a walk over all peers.
    std::uint64_t waiting_frames();
    std::size_t waiting_bytes() const { return waiting_bytes_; }
    bool has_lingering_connections() const {
        return !lingering_.empty();
    }  // The last frames are in flight.
    // After-end work does not end by itself: coroutines that would start or resume are destroyed.
    bool is_destroying_coroutines() const { return is_destroying_coroutines_; }
    void post_coroutine_end(Function<void()> work);  // As post(), for the end of one.
    void log_endless();                              // Logs once that there is one.
    std::uint32_t after_end_runs() const {
        return after_end_runs_;
    }  // Runs of after-end work so far.
    // Completions are destroyed uncalled.
    bool is_dropping() const { return is_dropping_; }

  private:
    struct Submission : base::MpscNode {
        Function<void()> work;
        std::uint32_t depth = 0;   // Length of the chain of after-end posts.
        bool is_end_work = false;  // Queued at the end, or posted by such work.
    };

    void set_fast_slot(EndpointSlot* slot) { fast_slot_.store(slot, std::memory_order_relaxed); }
    Claim claim_queued(Peer& peer, std::size_t bytes);
    void commit_queued(Peer& peer, const Claim& claim, std::size_t bytes);
    void drop_all(Peer& peer);
    void drain(Peer& peer);
    std::uint32_t run_submissions();
    void run_submissions_after_end() noexcept;
    void run_after_end() noexcept;
    void run_after_end(std::unique_ptr<Submission> submission);
    void enter_repost_depth(std::uint32_t depth);
    void stamp_repost_depth(Submission& submission) noexcept;
    void run_deferred_after_end();
    void run_offloaded(Function<void()>& work);
    std::uint32_t run_deferred();
    std::uint32_t poll_endpoint(EndpointSlot& slot);
    std::uint32_t turn_with_work(TimePoint now);
    Turn turn_nested(TimePoint now);
    void detect_backlog(std::size_t events);
    void on_message(Peer& peer, const std::byte* message, std::size_t bytes);
    void on_frames(Peer& peer, ByteView message);
    void on_other_event(EndpointSlot& slot, const na::Event& event);
    void dispatch(Peer& peer, FrameHead head, ByteView frame);
    void close_failed_peer();
    static void flush(EndpointSlot& slot);
    void on_up(EndpointSlot& slot, const na::Event& event);
    void on_down(EndpointSlot& slot, Peer& peer, Status why);
    void start_connecting(Peer& peer);
    void advance_connection(Peer& peer, AddressSelector::Step step, Status why);
    bool try_endpoints(Peer& peer, Status& why);
    void bind(Peer& peer, const Peer::Connection& connection);
    Peer::Connection unbind(Peer& peer);
    void close_gracefully(Peer& peer);
    bool activate(Peer& peer);
    void on_connection_lost(Peer& peer, Status why);
    void disconnect(Peer& peer);
    bool send_small(Peer& peer, FrameKind kind, std::uint16_t aux = 0);
    void update_direct(Peer& peer);
    // A call needs the peer alive, or an orderly end waits for it.
    bool needs_heartbeat(const Peer& peer) const;
    void start_heartbeat(Peer& peer);
    void record_silence(Peer& peer);
    void on_heartbeat(Peer& peer);
    void check_connect_attempt(Peer& peer);
    static Peer* peer_of(const EndpointSlot& slot, na::PeerId id) {
        return id.index < slot.peers.size() ? sender_of(slot, id) : nullptr;
    }
    // The same for a message: its sender was announced before, so the index is valid.
    static Peer* sender_of(const EndpointSlot& slot, na::PeerId id) {
        WEFT_DCHECK(id.index < slot.peers.size());
        Peer* peer = slot.peers[id.index];
        return peer && peer->na_id == id ? peer : nullptr;
    }

    base::Clock& clock_;
    base::Random& random_;
    base::Log& log_;
    const ContextOptions options_;
    OffloadPool* const pool_;
    TimePoint now_;
    base::TimerWheel timers_;
    LingeringConnections lingering_{timers_};
    std::vector<std::unique_ptr<EndpointSlot>> endpoints_;
    EndpointSlot* sole_slot_ = nullptr;  // If there is exactly one: the common case of a client.
    // The same, unless the next turn has more to do than to poll. The creator of the context may
    // write it (UseGuard) while another thread begins its first turn, which reads nullptr then.
    std::atomic<EndpointSlot*> fast_slot_{nullptr};
    CallScope* scope_ = nullptr;  // It may have ended.
    // Receives pings, and frame kinds without a sink.
    struct DefaultSink final : FrameSink {
        explicit DefaultSink(Context& own) : context(own) {}
        void on_frame(Peer& peer, FrameHead head, ByteView frame) override;
        Context& context;
    } default_sink_{*this};
    std::array<FrameSink*, frame_kinds> sinks_;
    std::vector<FrameSink*> all_sinks_;
    RmaSink* rma_sink_ = nullptr;
    base::SlotTable<Peer> peers_;
    base::IntrusiveList<Deferred> deferred_, deferred_to_end_;
    std::uint64_t turns_ = 0;
    bool is_forked_ = false;        // Set while no other thread exists.
    bool has_multi_frame_ = false;  // This poll had messages of several frames.
    TimePoint overloaded_since_{};  // Overloaded without a pause since,
    TimePoint overloaded_until_{};  // and until.
    // A member: constructing 64 events costs more than an empty poll.
    std::array<na::Event, 64> events_;
    Status why_failed_;
    PeerRef failed_peer_;
    Counters counters_;
    base::FlightRecorder recorder_;
    std::size_t waiting_bytes_ = 0;        // In all FIFOs.
    bool closed_ = false, armed_ = false;  // armed_: and no turn since.
    bool is_ending_ = false;               // undelivered() was called.
    TimePoint final_pings_due_{};          // During the end: the next final pings,
    TimePoint final_pings_end_{};          // and the time limit of their pongs.

    Function<Status(const na::Address&)> opener_;
    base::MpscQueue submissions_;
    std::atomic<std::size_t> submitted_bytes_{0};
    std::atomic<bool> submissions_closed_{false};
    std::weak_ptr<void> owner_;
    std::mutex after_end_mutex_;  // Guards running_after_end_, wake_fd_. Never held over user code.
    bool running_after_end_ = false;
    std::atomic<std::uint32_t> waiting_posters_{0};  // About to lock after_end_mutex_.
    // Depth of the after-end work that this thread runs, of any context; 0: none.
    static thread_local std::uint32_t repost_depth_;
    std::uint64_t deep_reposts_ = 0;   // This and the next are the runner's.
    std::uint64_t end_work_left_ = 0;  // Waiting end work (is_end_work).
    bool is_end_queued_ = false;       // All waiting work is end work.
    bool running_end_work_ = false;    // End work is running.
    bool is_destroying_coroutines_ = false, is_dropping_ = false;
    std::uint32_t after_end_runs_ = 0;
    bool has_logged_endless_ = false, has_logged_slow_ = false;
    std::atomic<bool> sleeping_{false};
    base::UniqueFd wake_fd_;
    ContextRegistration registration_{*this};
};

// Logs that `thrown` (null: nothing) left the code that `text` names; to the log of the context, or
// without one to standard error. Thread: the context's.
void log_thrown(Context* context, std::string text, const std::exception_ptr& thrown) noexcept;

}  // namespace weft::core
