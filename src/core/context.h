// One thread's domain: its endpoints, peers, frames, timers and submissions.
//
// A context owns no thread. turn(now) does everything that is due and returns; a driver
// (core/driver.h), a simulator or a test calls it. Everything else here is called from the turning
// thread too, except post() and wake().
//
// Back-pressure: a frame that the transport refuses waits in its peer's FIFO, bounded by
// Limits; what does not fit is refused at once. Nothing is buffered anywhere else.
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
#include "core/context_options.h"
#include "core/deferred.h"
#include "core/departures.h"
#include "core/frame.h"
#include "core/living.h"
#include "core/offload_pool.h"
#include "core/own_thread.h"
#include "core/scope.h"
#include "core/sinks.h"

namespace weft::core {

// Sets of endpoints are kept as bits (bulk/regions.h).
inline constexpr std::size_t endpoints_max = 64;

struct EndpointSlot {
    std::unique_ptr<na::Endpoint> endpoint;
    na::Caps caps;
    std::vector<Peer*> peers;  // By na::PeerId::index.
    std::uint32_t index = 0;
    std::uint32_t idle_polls = 0;
    TimePoint polled_at;                   // Where there are several.
    bool unflushed = false;                // A commit of this turn waits for flush().
    na::Endpoint* of_parent = nullptr;     // In a forked child: never destroyed there.
    base::IntrusiveList<Traffic> starved;  // Peers that take turns, for it has no room for more.
};

inline constexpr Duration backlog_max = 20ms, long_turn = 5ms;
inline constexpr std::size_t many_events = 8;

// What one turn did, for the driver.
struct Turn {
    std::uint32_t events = 0;
};

class Context final : public Executor, public OwnThread {
  public:
    Context(base::Clock& clock, base::Random& random, base::Log& log, ContextOptions options = {},
            OffloadPool* pool = nullptr);
    ~Context();

    // ---- composition -------------------------------------------------------------------------
    EndpointSlot& add_endpoint(std::unique_ptr<na::Endpoint> endpoint);
    const std::vector<std::unique_ptr<EndpointSlot>>& endpoints() const { return endpoints_; }
    // Who receives frames of a kind.
    void set_sink(FrameKind kind, FrameSink& sink);
    // Who hears of peers, besides the sinks.
    void watch_peers(FrameSink& watcher) { all_sinks_.push_back(&watcher); }
    // Who adds an endpoint for an address that none of those here can reach, or says why not.
    void set_opener(Function<Status(const na::Address&)> opener) { opener_ = std::move(opener); }
    void set_rma_sink(RmaSink& sink) { rma_sink_ = &sink; }

    // Ends every connection in order, telling the sinks `why`. Nothing connects again; turns go on,
    // for the fences of regions and while is_leaving().
    void shutdown(const Status& why) noexcept;
    // After shutdown(): destroys the endpoints. Requires: not called from turn(), which walks them.
    void close_endpoints() noexcept;
    // No turn will come any more: from here on post() runs its work at once, on the calling thread
    // or on another that is doing so, one at a time; work that posts itself for ever is dropped.
    void close_submissions();
    // After that: no thread is woken any more. What keeps this keeps no descriptor then.
    void close_wake();
    // What this context is a part of: kept alive while late work runs, which may let go of it.
    void set_owner(std::weak_ptr<void> owner) { owner_ = std::move(owner); }
    std::shared_ptr<Executor> share() { return {owner_.lock(), this}; }
    bool is_closed() const { return closed_; }
    // After close_submissions().
    bool is_over() const { return submissions_closed_.load(std::memory_order_relaxed); }

    // ---- in a child made by fork(): from on_forked() on endpoints take and give nothing --------
    void on_forked() noexcept;  // Takes no lock.
    bool is_forked() const { return is_forked_; }
    // FAILED_PRECONDITION, effect none; OK where is_forked() is false.
    Status why_forked() const;

    // ---- scopes: what is done for the sake of a call -------------------------------------------
    // nullptr: what is started now is done for nobody else's sake.
    Scope* scope() const { return scope_ && scope_->is_open() ? scope_ : nullptr; }
    // The same, for who looks at scope() next: true where there may be one.
    bool may_have_scope() const { return scope_ != nullptr; }
    // Of whatever context this thread is in: `never` where nothing is inherited.
    static TimePoint inherited_deadline();
    // Of whatever context this thread is in; the default where it is in none.
    static std::size_t parsed_bytes_max() {
        const auto* const here = static_cast<const Context*>(current_);
        return here ? here->options_.parsed_bytes_max : ContextOptions().parsed_bytes_max;
    }
    // For handlers, which run in no other's scope.
    void enter(Scope& scope) { scope_ = &scope; }
    void leave() { scope_ = nullptr; }
    // While it lives the context is in `scope` (nullptr: in none); then in the one before, unless
    // that has ended.
    class Within {
      public:
        Within(Context& context, Scope* scope) : context_(context), outer_(context.scope()) {
            if (outer_) outer_generation_ = outer_->generation;
            context.scope_ = scope;
        }
        Within(const Within&) = delete;
        Within& operator=(const Within&) = delete;
        ~Within() {
            const bool is_there = outer_ && outer_->generation == outer_generation_;
            context_.scope_ = is_there ? outer_ : nullptr;
        }

      private:
        Context& context_;
        Scope* const outer_;
        std::uint32_t outer_generation_ = 0;
    };

    // ---- the turn ----------------------------------------------------------------------------
    // What a callback throws ends the program: half a batch would be lost.
    Turn turn(TimePoint now) noexcept;
    // The instant of the current or last turn.
    TimePoint now() const { return now_; }
    // Whether this thread is in a turn of this very context.
    bool in_turn() const { return current_ == this; }
    // The same, or in one around it: of another context that was turned inside it.
    bool is_entered() const { return is_in(*this); }
    // Between turns, for what is about to be done: now() is the time again. Thread: the context's.
    TimePoint refresh_time() {
        rouse();
        return now_ = clock_.now();
    }
    // Between turns, for what may ask for one (a message to flush, an earlier deadline): the event
    // loop that waits since arm() looks again. Thread: the context's.
    void rouse() {
        if (sleeping_.load(std::memory_order_relaxed)) [[unlikely]] {
            wake();
        }
    }
    // In a turn its instant is the time; at other times it may be long ago. Thread: any.
    TimePoint current_time() const { return in_turn() ? now_ : clock_.now(); }
    // Nothing to do before this instant unless something arrives.
    TimePoint next_deadline() const;
    // Something waits for the next turn, besides what time or a peer brings.
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
    static constexpr std::size_t handed_over_bytes = core::handed_over_bytes;
    // Room for `bytes` of what other threads hand over, until release()d. False: there is none now.
    bool admit(std::size_t bytes);
    void release(std::size_t bytes) {
        submitted_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    }
    // The same, released when it is destroyed at the latest.
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
    // INVALID_ARGUMENT for what will never be admitted, else RESOURCE_EXHAUSTED.
    Status why_not_admitted(std::size_t bytes) const;

    // ---- peers -------------------------------------------------------------------------------
    // A peer with these addresses, of which path.h chooses; connects with the first frame.
    // Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE (after shutdown()).
    Result<PeerRef> add_peer(std::vector<na::Address> addresses);
    static bool knows(PeerRef ref) { return ref.at && is_current(ref); }
    // The same for one that is not empty.
    static bool is_current(PeerRef ref) {
        return base::SlotTable<Peer>::entry_of(*ref.at).generation == ref.generation;
    }
    static Peer* find(PeerRef ref) { return knows(ref) ? ref.at : nullptr; }
    // Ends the peer's connection and tells every sink. One that we connected to may be used again.
    void drop_connection(Peer& peer, const Status& why);
    // Forgets a peer: ends its connection in order, tells every sink.
    void remove_peer(Peer& peer, const Status& why);
    // Starts connecting an idle peer; whatever comes of it is told in a later turn.
    void connect(Peer& peer);
    // Why one that is connecting is not up yet; empty: nothing is known.
    static std::string why_waiting(const Peer& peer);
    // The peer sent something malformed: it loses its connection once the current frame returns.
    void broken(Peer& peer, std::string_view reason);
    // The same for a peer that did no wrong: what it is owed can't be sent.
    void give_up(Peer& peer, Status why);
    // One more, one fewer reason to know whether the peer lives.
    void add_interest(Peer& peer) {
        ++peer.interest;
        // Runs on for a while after the last interest, so mostly it is there.
        if (!peer.heartbeat.is_linked()) [[unlikely]] {
            start_heartbeat(peer);
        }
    }
    void drop_interest(Peer& peer) { --peer.interest; }
    // A peer that says nothing is given up after so long at the latest.
    Duration silence_max() const {
        return (options_.heartbeats_missed_max + 2) * options_.heartbeat_interval;
    }

    // ---- frames ------------------------------------------------------------------------------
    // The usual way of a call: room in the transport's memory, to be committed at once. Requires: a
    // body below peer.direct_body_end. nullptr: no room now, claim() it instead.
    std::byte* reserve(Peer& peer, std::size_t bytes) {
        return peer.endpoint->endpoint->reserve(peer.na_id, bytes);
    }
    // A large body, to the end of what was reserved or into what is lent. Requires: up.
    void copy_out(Peer& peer, std::byte* to, ByteView body) {
        peer.endpoint->endpoint->copy_out(to, body);
    }
    void commit(Peer& peer, std::size_t bytes) {
        EndpointSlot& slot = *peer.endpoint;
        slot.unflushed |= slot.endpoint->commit(bytes);
    }

    // Room for one frame of exactly `bytes` (head included, to be written by the caller): in the
    // transport's memory, or in the peer's FIFO. Commit it before anything else is claimed.
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
    // What says in a few words what became of a call or transfer waits where other frames may not.
    static constexpr std::size_t short_frame_bytes = 2048;
    // Of what one peer may have waiting.
    bool has_full_queue(const Peer& peer, std::size_t bytes) const;
    // What replies need stays free.
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
    // The same for a frame that may wait for others of this turn.
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
    // For what is notable and not of every call.
    void note(const char* what, std::string_view who, std::uint64_t number = 0) {
        recorder_.record(now_, what, who, number);
    }
    const base::FlightRecorder& recorder() const { return recorder_; }
    // For people: endpoints and peers.
    std::string state(std::size_t lines_max);
    base::Clock& clock() { return clock_; }

    // Requires: not linked. Runs in the next turn; when none will come, as post() does.
    void defer(Deferred& work) {
        deferred_.push_back(work);
        set_quick(nullptr);
        rouse();
        if (is_over()) [[unlikely]]
            run_deferred_late();
    }
    // Requires: not linked. Runs in the first turn after shutdown(), unless it is deferred before.
    void defer_to_end(Deferred& work) { at_end_.push_back(work); }
    void undefer(Deferred& work) { work.take_back(); }

    struct Counters {
        std::uint64_t frames_queued = 0;
        std::uint64_t broken_peers = 0;
        std::uint64_t silent_peers = 0;
    };
    const Counters& counters() const { return counters_; }
    // At an orderly end, when nothing more is to be sent: how much may still be lost if the
    // endpoints ended now. To be asked again and again, in turns: it pings the peers over
    // transports that do not know what arrived. Cost: a walk over all peers.
    std::uint64_t undelivered();
    // In the FIFOs of all peers. Cost: a walk over them.
    std::uint64_t waiting_frames();
    std::size_t waiting_bytes() const { return waiting_bytes_; }
    bool is_leaving() const { return !departures_.empty(); }  // What was said last is on its way.
    // What waited after the end, and did so again and again, is ended: coroutines are destroyed.
    bool is_ending_waiters() const { return is_ending_waiters_; }
    void post_end(Function<void()> work);                   // As post(), of such a coroutine.
    void log_late();                                        // That there is one; once.
    std::uint32_t late_runs() const { return late_runs_; }  // That began, where nothing was left.
    // Completions are destroyed uncalled.
    bool is_dropping() const { return is_dropping_; }

  private:
    struct Submission : base::MpscNode {
        Function<void()> work;
        std::uint32_t depth = 0;  // How often late work posted again to come to this.
        bool is_of_end = false;   // Comes of what was there when the context ended.
    };

    void set_quick(EndpointSlot* slot) { quick_.store(slot, std::memory_order_relaxed); }
    Claim claim_queued(Peer& peer, std::size_t bytes);
    void commit_queued(Peer& peer, const Claim& claim, std::size_t bytes);
    void drop_all(Peer& peer);
    void drain(Peer& peer);
    std::uint32_t run_submissions();
    void run_late_submissions() noexcept;
    void run_late() noexcept;
    void run_late(std::unique_ptr<Submission> submission);
    void descend_late(std::uint32_t depth);
    void follow_late(Submission& submission) noexcept;
    void run_deferred_late();
    void run_offloaded(Function<void()>& work);
    std::uint32_t run_deferred();
    std::uint32_t poll_endpoint(EndpointSlot& slot);
    std::uint32_t turn_with_work(TimePoint now);
    Turn turn_inside_another(TimePoint now);
    void judge_load(std::size_t events);
    void on_message(Peer& peer, const std::byte* message, std::size_t bytes);
    void on_frames(Peer& peer, ByteView message);
    void on_other_event(EndpointSlot& slot, const na::Event& event);
    void dispatch(Peer& peer, FrameHead head, ByteView frame);
    void close_condemned();
    static void flush(EndpointSlot& slot);
    void on_up(EndpointSlot& slot, const na::Event& event);
    void on_down(EndpointSlot& slot, Peer& peer, Status why);
    void start_connecting(Peer& peer);
    void follow(Peer& peer, Path::Step step, Status why);
    bool try_endpoints(Peer& peer, Status& why);
    void bind(Peer& peer, const Peer::Connection& connection);
    Peer::Connection unbind(Peer& peer);
    void leave(Peer& peer);
    bool use(Peer& peer);
    void lost(Peer& peer, Status why);
    void disconnect(Peer& peer);
    bool send_small(Peer& peer, FrameKind kind, std::uint16_t aux = 0);
    void update_direct(Peer& peer);
    // A call needs the peer alive, or an orderly end waits for it.
    bool is_needed(const Peer& peer) const;
    void start_heartbeat(Peer& peer);
    void note_silence(Peer& peer);
    void on_heartbeat(Peer& peer);
    void look_at_attempt(Peer& peer);
    static Peer* peer_of(const EndpointSlot& slot, na::PeerId id) {
        return id.index < slot.peers.size() ? sender_of(slot, id) : nullptr;
    }
    // The same for a message: who sends one was announced before, so it has a place there.
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
    Departures departures_{timers_};
    std::vector<std::unique_ptr<EndpointSlot>> endpoints_;
    EndpointSlot* only_ = nullptr;  // When there is exactly one: the common case of a client.
    // The same, unless the next turn has more to do than to poll. The maker of the context may
    // write it (Here) while another thread begins its first turn, which finds nullptr then.
    std::atomic<EndpointSlot*> quick_{nullptr};
    Scope* scope_ = nullptr;  // Maybe of one that has ended.
    // Pings, and whatever no layer above has asked for.
    struct OwnFrames final : FrameSink {
        explicit OwnFrames(Context& own) : context(own) {}
        void on_frame(Peer& peer, FrameHead head, ByteView frame) override;
        Context& context;
    } own_frames_{*this};
    std::array<FrameSink*, frame_kinds> sinks_;
    std::vector<FrameSink*> all_sinks_;
    RmaSink* rma_sink_ = nullptr;
    base::SlotTable<Peer> peers_;
    base::IntrusiveList<Deferred> deferred_, at_end_;
    std::uint64_t turns_ = 0;
    bool is_forked_ = false;     // Never while other threads exist.
    bool has_joined_ = false;    // Messages of several frames came with this poll.
    TimePoint pressed_since_{};  // From then on, without a pause,
    TimePoint pressed_at_{};     // until then there was too much to do.
    // Kept: building 64 events costs more than an empty poll.
    std::array<na::Event, 64> events_;
    Status why_condemned_;
    PeerRef condemned_;
    Counters counters_;
    base::FlightRecorder recorder_;
    std::size_t waiting_bytes_ = 0;        // In all FIFOs.
    bool closed_ = false, armed_ = false;  // The latter: and no turn since.
    bool is_ending_ = false;               // undelivered() was called.
    TimePoint last_pings_due_{};           // While the end goes on: the next round of last pings,
    TimePoint last_pings_end_{};           // and when those that do not answer are gone.

    Function<Status(const na::Address&)> opener_;
    base::MpscQueue submissions_;
    std::atomic<std::size_t> submitted_bytes_{0};
    std::atomic<bool> submissions_closed_{false};
    std::weak_ptr<void> owner_;
    std::mutex late_mutex_;  // Guards the next, and wake_fd_. Never held over user code.
    bool running_late_ = false;
    std::atomic<std::uint32_t> late_posters_{0};  // About to take it, or to find it taken.
    // Of what this thread runs after the end of a context, be it another one; 0: nothing.
    static thread_local std::uint32_t late_depth_;
    std::uint64_t deep_works_ = 0;  // The runner's, as what follows.
    std::uint64_t end_left_ = 0;    // What is of the end, and waits;
    bool is_end_queued_ = false;    // so is all that was posted before it.
    bool runs_end_ = false;         // What runs is.
    bool is_ending_waiters_ = false, is_dropping_ = false;
    std::uint32_t late_runs_ = 0;
    bool has_logged_late_ = false, has_logged_slow_ = false;
    std::atomic<bool> sleeping_{false};
    base::UniqueFd wake_fd_;
    Living living_{*this};
};

// That this (null: nothing) was thrown, and left what `text` says; to the log of the context, or of
// the process. Thread: the context's.
void log_thrown(Context* context, std::string text, const std::exception_ptr& thrown) noexcept;

}  // namespace weft::core
