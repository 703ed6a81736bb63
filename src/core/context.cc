#include "core/context.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/assert.h"
#include "base/fork.h"
#include "base/own_descriptor.h"

namespace weft {

Executor* Executor::current() { return core::ThreadOwnership::current_; }

namespace core {

// With several endpoints, one that was idle for so many polls is polled every `idle_stride` turns
// only: an idle libfabric poll costs system calls, a shared-memory round trip none. Long turns do
// not delay it: after `unpolled_max` it is polled in any case.
static constexpr std::uint32_t idle_polls_max = 64;
static constexpr std::uint64_t idle_stride = 64;
static constexpr Duration unpolled_max = 1ms;

// A child forked inside a turn may only exec or _exit().
static constexpr const char* returned_text =
    "a handler, completion or coroutine called fork() and returned in the child";

// Defined beside turn(), which then needs no load of its offset.
constinit thread_local Executor* ThreadOwnership::current_ = nullptr;

Context::Context(base::Clock& clock, base::Random& random, base::Log& log, ContextOptions options,
                 OffloadPool* pool)
    : clock_(clock),
      random_(random),
      log_(log),
      options_(options),
      pool_(pool),
      now_(clock.now()),
      timers_(now_),
      peers_(options.peers_max),
      wake_fd_(
          base::UniqueFd::close_on_fork([&] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {
    endpoints_.reserve(endpoints_max);  // A forked child finds them consistent.
    sinks_.fill(&default_sink_);
    bind_thread();
}

Context::~Context() {
    registration_.end();  // Destructors below resume nothing here.
    peers_.for_each([&](auto& entry) {
        timers_.cancel(entry.value.heartbeat);
        drop_all(entry.value);
    });
    while (base::MpscNode* node = submissions_.pop()) delete static_cast<Submission*>(node);
    deferred_.splice_back(deferred_to_end_);
    while (deferred_.pop_front()) {
    }
}

EndpointSlot& Context::add_endpoint(std::unique_ptr<na::Endpoint> endpoint) {
    auto slot = std::make_unique<EndpointSlot>();
    slot->caps = endpoint->caps();
    slot->endpoint = std::move(endpoint);
    slot->index = static_cast<std::uint32_t>(endpoints_.size());
    endpoints_.push_back(std::move(slot));
    sole_slot_ = endpoints_.size() == 1 ? endpoints_.front().get() : nullptr;
    set_fast_slot(nullptr);  // The next turn sets it.
    return *endpoints_.back();
}

void Context::set_sink(FrameKind kind, FrameSink& sink) {
    sinks_[static_cast<std::size_t>(kind)] = &sink;
    if (std::find(all_sinks_.begin(), all_sinks_.end(), &sink) == all_sinks_.end()) {
        all_sinks_.push_back(&sink);
    }
}

// ---- from a message to its handler: one function with turn() after inlining -----------------

inline void Context::dispatch(Peer& peer, FrameHead head, ByteView frame) {
    const auto kind = static_cast<std::size_t>(head.kind);
    if (kind >= frame_kinds) [[unlikely]] {
        return default_sink_.on_frame(peer, head, frame);
    }
    sinks_[kind]->on_frame(peer, head, frame);
}

void Context::DefaultSink::on_frame(Peer& peer, FrameHead head, ByteView) {
    if (head.kind != FrameKind::ping && head.kind != FrameKind::pong) {
        context.close_malformed(
            peer, "a frame of unknown kind " + std::to_string(static_cast<int>(head.kind)));
    } else if (head.flags != 0 || head.bytes != sizeof(FrameHead)) {
        context.close_malformed(peer, "a ping or pong of a later version");
    } else if (head.kind == FrameKind::pong) {
        peer.has_answered = true;
        if (head.aux == final_ping) peer.all_delivered = true;
    } else if (!context.send_small(peer, FrameKind::pong, head.aux)) {
        // One pong answers all pings before it. The aux of a final ping stays: without it the peer
        // has no proof that its messages arrived, and its end waits for its next round.
        if (!peer.pong_pending || head.aux == final_ping) peer.pong_aux = head.aux;
        peer.pong_pending = true;
    }
}

inline void Context::on_message(Peer& peer, const std::byte* message, std::size_t bytes) {
    peer.has_received = true;
    // Most messages are one frame.
    FrameHead head;
    if (bytes < sizeof head || (head = base::load<FrameHead>(message)).bytes != bytes)
        [[unlikely]] {
        return on_frames(peer, {message, bytes});
    }
    dispatch(peer, head, {message, bytes});
    if (failed_peer_) [[unlikely]] {
        close_failed_peer();
    }
}

[[gnu::always_inline]] inline std::uint32_t Context::poll_endpoint(EndpointSlot& slot) {
    const std::size_t count = slot.endpoint->poll(events_, now_);
    for (const na::Event& event : std::span(events_).first(count)) {
        if (event.kind != na::EventKind::message) [[unlikely]] {
            on_other_event(slot, event);
        } else if (Peer* peer = sender_of(slot, event.peer)) [[likely]] {
            on_message(*peer, event.bytes.data(), event.bytes.size());
        }
    }
    if (count >= many_events || has_multi_frame_) [[unlikely]] {
        detect_backlog(count);
    }
    return static_cast<std::uint32_t>(count);
}

// Overload: consecutive turns that left messages unread, or had handlers that took long in total.
[[gnu::noinline]] void Context::detect_backlog(std::size_t events) {
    has_multi_frame_ = false;
    const TimePoint end = clock_.now();
    if (events < events_.size() && end - now_ < long_turn) return;
    if (overloaded_until_ + 1ms < now_) overloaded_since_ = now_;
    overloaded_until_ = end;
    if (end - overloaded_since_ < backlog_max) return;
    overloaded_since_ = end;
    for (FrameSink* sink : all_sinks_) sink->on_backlog();
}

// ---- the turn --------------------------------------------------------------------------------

Turn Context::turn(TimePoint now) noexcept {
    if (current_) [[unlikely]] {
        return turn_nested(now);
    }
    current_ = this;
    std::uint32_t events = 0;
    EndpointSlot* const slot = fast_slot_.load(std::memory_order_relaxed);
    if (slot) [[likely]] {
        thread_.store(&current_, std::memory_order_relaxed);
    }
    if (!slot || !submissions_.empty()) [[unlikely]] {
        events = turn_with_work(now);
    } else {
        now_ = now;
        events = poll_endpoint(*slot);
        timers_.advance(now);
        if (slot->unflushed) flush(*slot);
    }
    current_ = nullptr;
    return {events};
}

// A handler of another context turns this one.
[[gnu::noinline]] Turn Context::turn_nested(TimePoint now) {
    // A nested turn would free messages that the outer turn still reads.
    if (is_entered()) abort_nested_turn();
    const EnterGuard scope(*this);
    return {turn_with_work(now)};
}

void Context::flush(EndpointSlot& slot) {
    slot.unflushed = false;
    slot.endpoint->flush();
}

// Any number of endpoints, submissions and deferred work.
std::uint32_t Context::turn_with_work(TimePoint now) {
    if (is_forked_) base::abort_forked("a turn of the runtime");
    // Without the fast slot each turn runs this: end_borrowing() waits for borrowed turns.
    set_fast_slot(has_turned() || end_borrowing() ? sole_slot_ : nullptr);
    bind_thread();
    now_ = now;
    ++turns_;
    if (std::exchange(armed_, false)) wake();
    std::uint32_t events = run_submissions() + run_deferred();
    // By index: a completion may open another endpoint.
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
        EndpointSlot& slot = *endpoints_[i];
        const bool may_wait = slot.idle_polls > idle_polls_max && turns_ % idle_stride != 0;
        if (may_wait && now - slot.polled_at < unpolled_max && !sole_slot_) continue;
        slot.polled_at = now;
        const std::uint32_t count = poll_endpoint(slot);
        slot.idle_polls = count == 0 ? slot.idle_polls + 1 : 0;
        events += count;
    }
    timers_.advance(now);
    for (const auto& slot : endpoints_) {
        if (slot->unflushed) flush(*slot);
    }
    return events;
}

std::uint32_t Context::run_deferred() {
    base::IntrusiveList<Deferred> due;
    due.splice_back(deferred_);
    std::uint32_t ran = 0;
    while (Deferred* work = due.pop_front()) {
        ++ran;
        work->run(*work);
        if (is_forked_) base::abort_forked(returned_text);
    }
    return ran;
}

std::uint32_t Context::run_submissions() {
    std::uint32_t ran = 0;
    // Bounded, so that a thread that submits without end cannot starve the network.
    while (ran < 256) {
        base::MpscNode* node = submissions_.pop();
        if (!node) break;
        std::unique_ptr<Submission> submission(static_cast<Submission*>(node));
        submission->work();
        if (is_forked_) base::abort_forked(returned_text);
        ++ran;
    }
    return ran;
}

void Context::on_other_event(EndpointSlot& slot, const na::Event& event) {
    Peer* peer = peer_of(slot, event.peer);
    switch (event.kind) {
        case na::EventKind::peer_up: on_up(slot, event); break;
        case na::EventKind::peer_down:
            if (peer) {
                const Code code = event.code == Code::ok ? Code::unavailable : event.code;
                on_down(slot, *peer, fail(code, slot.endpoint->error()));
            }
            break;
        case na::EventKind::writable:
            if (peer) drain(*peer);
            break;
        case na::EventKind::rma_done:
            // With fenced_by_end the peer itself moves the data: a completion is an answer.
            if (peer && event.code == Code::ok && slot.caps.fenced_by_end)
                peer->has_answered = true;
            if (rma_sink_) {
                rma_sink_->on_rma_done(event.cookie, event.code,
                                       event.code == Code::ok ? "" : slot.endpoint->error());
            }
            break;
        case na::EventKind::region_fenced:
            if (rma_sink_) rma_sink_->on_region_fenced(event.region, slot);
            break;
        case na::EventKind::message: break;
    }
    if (is_forked_) base::abort_forked(returned_text);
}

// Several frames, or a malformed message.
void Context::on_frames(Peer& peer, ByteView message) {
    has_multi_frame_ = true;
    const PeerRef ref = peer.ref;
    const bool whole = for_each_frame(message, [&](FrameHead head, ByteView frame) {
        dispatch(peer, head, frame);
        // User code may have removed the peer, or the frame may have failed it.
        return !failed_peer_ && peer.state == PeerState::up && peer.ref == ref;
    });
    if (!whole && !failed_peer_ && peer.state == PeerState::up && peer.ref == ref) {
        close_malformed(peer, "a message with impossible frame lengths");
    }
    if (failed_peer_) close_failed_peer();
}

void Context::close_failed_peer() {
    if (is_forked_) base::abort_forked(returned_text);
    Peer* peer = find(std::exchange(failed_peer_, {}));
    const Status why = std::exchange(why_failed_, {});
    if (!peer || peer->state != PeerState::up) return;
    log_.write_rate_limited(LogLevel::warning, now_, peer->uri + ": " + std::string(why.text()));
    peer->endpoint->endpoint->close(peer->na_id);
    on_connection_lost(*peer, why);
}

void Context::close_malformed(Peer& peer, std::string_view reason) {
    ++counters_.malformed_peers;
    record_event("broken", peer.uri);
    fail_connection(
        peer, fail(Code::unavailable, "connection closed: the peer sent " + std::string(reason)));
}

void Context::fail_connection(Peer& peer, Status why) {
    failed_peer_ = peer.ref;
    why_failed_ = std::move(why);
}

TimePoint Context::next_deadline() const {
    TimePoint next = timers_.next_deadline();
    for (const auto& slot : endpoints_) next = std::min(next, slot->endpoint->next_deadline());
    return next;
}

bool Context::has_work() const {
    return !submissions_.empty() || !deferred_.empty() ||
           std::any_of(endpoints_.begin(), endpoints_.end(),
                       [](const auto& slot) { return slot->unflushed; });
}

TimePoint Context::inherited_deadline() {
    const auto* const here = static_cast<const Context*>(current_);
    const CallScope* const scope = here ? here->scope() : nullptr;
    return scope ? scope->deadline : never;
}

bool Context::arm() {
    sleeping_.store(true, std::memory_order_seq_cst);
    bool quiet = submissions_.empty() && deferred_.empty();
    for (auto& slot : endpoints_) {
        if (!quiet) break;
        slot->idle_polls = 0;  // Poll all of them after the sleep.
        quiet = !slot->unflushed && (!slot->caps.wait_fd || slot->endpoint->arm());
    }
    if (!quiet) sleeping_.store(false, std::memory_order_relaxed);
    armed_ = quiet;
    set_fast_slot(nullptr);
    return quiet;
}

void Context::disarm() {
    armed_ = false;
    sleeping_.store(false, std::memory_order_relaxed);
    std::uint64_t drained = 0;
    (void)base::check_open(read(wake_fd_.get(), &drained, sizeof drained));
}

void Context::post(Function<void()> work) {
    if (submissions_closed_.load(std::memory_order_relaxed) && is_forked_) [[unlikely]] {
        return base::report_forked("work that is posted is dropped");
    }
    auto* submission = new Submission;
    submission->work = std::move(work);
    if (!submission->work) [[unlikely]]
        detail::refuse_empty("Executor::post()");
    if (submissions_closed_.load(std::memory_order_relaxed)) [[unlikely]]
        stamp_repost_depth(*submission);
    submissions_.push(*submission);
    if (submissions_closed_.load(std::memory_order_seq_cst)) [[unlikely]]
        return run_submissions_after_end();
    wake();
}

bool Context::admit(std::size_t bytes) {
    if (bytes > options_.submitted_bytes_max) return false;
    const std::size_t before = submitted_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (before + bytes <= options_.submitted_bytes_max) return true;
    release(bytes);
    return false;
}

Status Context::why_not_admitted(std::size_t bytes) const {
    Status why =
        fail(Code::resource_exhausted, "other threads have handed over " +
                                           std::to_string(options_.submitted_bytes_max >> 20) +
                                           " MiB that wait for the context's turn");
    if (bytes > options_.submitted_bytes_max) {
        why = fail(Code::invalid_argument, "a request of " +
                                               std::to_string(bytes - submission_overhead_bytes) +
                                               " bytes; pass large data by weft.BulkRef");
    }
    return std::move(why).with_stage(Stage::queued);
}

void Context::wake() {
    if (!sleeping_.exchange(false, std::memory_order_seq_cst)) return;
    if (is_forked_) return;  // The descriptor is the parent's.
    const std::uint64_t one = 1;
    const std::lock_guard lock(after_end_mutex_);
    if (wake_fd_) (void)base::check_open(write(wake_fd_.get(), &one, sizeof one));
}

// ---- frames that wait ------------------------------------------------------------------------

// Short frames of a peer may exceed its limit by this; those of all peers theirs by a quarter.
static constexpr std::size_t short_frames_extra_bytes = 2u << 20;

bool Context::has_full_queue(const Peer& peer, std::size_t bytes) const {
    const std::size_t beyond = bytes <= short_frame_bytes ? short_frames_extra_bytes : 0;
    return peer.waiting_frames >= options_.waiting_frames_max ||
           peer.waiting_bytes + bytes > options_.waiting_bytes_max() + beyond;
}

Context::Claim Context::claim_queued(Peer& peer, std::size_t bytes) {
    // An incoming peer can't be connected to again.
    if (peer.incoming && peer.state != PeerState::up) return {};
    if (has_full_queue(peer, bytes)) return {};
    // A peer with little waiting is not refused because of other peers.
    const std::size_t all = options_.waiting_bytes_all_max;
    const std::size_t beyond = bytes <= short_frame_bytes ? all / 4 : 0;
    if (waiting_bytes_ + bytes > all + beyond && peer.waiting_bytes > waiting_bytes_guaranteed) {
        return {};
    }
    void* memory = ::operator new(sizeof(QueuedFrame) + bytes, std::nothrow);
    if (!memory) return {};
    auto* queued = ::new (memory) QueuedFrame;
    queued->frame_bytes = static_cast<std::uint32_t>(bytes);
    return {queued->frame().data(), queued};
}

void Context::commit_queued(Peer& peer, const Claim& claim, std::size_t bytes) {
    claim.queued->frame_bytes = static_cast<std::uint32_t>(bytes);
    peer.waiting.push_back(*claim.queued);
    peer.waiting_bytes += bytes;
    waiting_bytes_ += bytes;
    ++peer.waiting_frames;
    update_direct(peer);
    ++counters_.frames_queued;
    if (peer.state == PeerState::idle) connect(peer);
}

// Called after every change of its inputs.
void Context::update_direct(Peer& peer) {
    const std::size_t room = peer.message_bytes_max;
    const bool direct =
        peer.state == PeerState::up && peer.waiting_frames == 0 && room > call_header_bytes_max;
    peer.direct_body_end =
        direct ? std::min(peer.eager_bytes_max, room - call_header_bytes_max) + 1 : 0;
}

void Context::drop(Peer& peer, QueuedFrame& queued) {
    queued.unlink();
    peer.waiting_bytes -= queued.frame_bytes;
    waiting_bytes_ -= queued.frame_bytes;
    --peer.waiting_frames;
    update_direct(peer);
    queued.~QueuedFrame();
    ::operator delete(&queued);
}

void Context::drop_all(Peer& peer) {
    while (QueuedFrame* queued = peer.waiting.front()) drop(peer, *queued);
}

void Context::drain(Peer& peer) {
    // Pong and ping are sent before the queue: liveness does not depend on its length.
    if (peer.pong_pending) peer.pong_pending = !send_small(peer, FrameKind::pong, peer.pong_aux);
    if (peer.ping_pending) peer.ping_pending = !send_small(peer, FrameKind::ping);
    while (QueuedFrame* queued = peer.waiting.front()) {
        if (peer.state != PeerState::up) return;
        // The smallest message size that a peer may offer holds any of these frames; the size of
        // replies was checked when they were built.
        if (queued->frame_bytes <= peer.message_bytes_max) {
            std::byte* to = reserve(peer, queued->frame_bytes);
            if (!to) return;
            copy_out(peer, to, queued->frame());
            commit(peer, queued->frame_bytes);
        }
        drop(peer, *queued);
    }
    const PeerRef ref = peer.ref;
    for (FrameSink* sink : all_sinks_) {
        if (peer.state != PeerState::up || peer.ref != ref) return;
        sink->on_room(peer);
    }
}

// False: the transport is full; drain() retries.
bool Context::send_small(Peer& peer, FrameKind kind, std::uint16_t aux) {
    std::byte* to = peer.state == PeerState::up ? reserve(peer, sizeof(FrameHead)) : nullptr;
    if (!to) return false;
    base::store(to, FrameHead{kind, 0, aux, sizeof(FrameHead)});
    commit(peer, sizeof(FrameHead));
    return true;
}

}  // namespace core
}  // namespace weft
