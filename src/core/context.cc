#include "core/context.h"

#include "base/assert.h"
#include "base/fork.h"
#include "base/steady_clock.h"
#include "base/thread_usage.h"

namespace weft {

Executor* Executor::current() { return core::ThreadOwnership::current_; }

namespace core {

// A context without a pool logs offloaded work that waits longer.
static constexpr Duration slow_work = 100ms;

// Defined beside turn(), which then needs no load of its offset.
constinit thread_local Executor* ThreadOwnership::current_ = nullptr;

Context::Context(base::Clock& clock, base::Random& random, base::Log& log,
                 const ContextOptions& options, OffloadPool* pool)
    : clock_(clock),
      random_(random),
      log_(log),
      options_(options),
      pool_(pool),
      loop_(clock),
      router_(*this),
      peers_(options_, loop_, router_, recorder_, log_),
      submissions_(options.submitted_bytes_max),
      after_end_(*this, submissions_, loop_, log_) {
    if (options.family) join_family(*options.family, options.member);
    bind_thread();
}

Context::~Context() {
    registration_.end();  // Destructors below resume nothing here.
    peers_.clear();
    submissions_.clear();
    loop_.drop_deferred();
}

void Context::on_frame(Peer& peer, FrameHead head, ByteView) {
    if (head.kind != FrameKind::ping && head.kind != FrameKind::pong) {
        close_malformed(peer,
                        "a frame of unknown kind " + std::to_string(static_cast<int>(head.kind)));
    } else if (head.flags != 0 || head.bytes != sizeof(FrameHead)) {
        close_malformed(peer, "a ping or pong of a later version");
    } else {
        Liveness::on_frame(peer, head);
    }
}

// ---- from a message to its handler: one function with turn() after inlining -----------------

inline void Context::on_message(Peer& peer, const std::byte* message, std::size_t bytes) {
    peer.pulse.has_received = true;
    // Most messages are one frame.
    FrameHead head;
    if (bytes < sizeof head || (head = base::load<FrameHead>(message)).bytes != bytes)
        [[unlikely]] {
        return on_frames(peer, {message, bytes});
    }
    router_.dispatch(peer, head, {message, bytes});
    if (router_.has_failed()) [[unlikely]] {
        close_failed_peer();
    }
}

[[gnu::always_inline]] inline std::uint32_t Context::poll_endpoint(EndpointSlot& slot) {
    return loop_.poll(
        slot,
        [this](Peer& peer, const std::byte* message, std::size_t bytes) {
            on_message(peer, message, bytes);
        },
        [this](EndpointSlot& from, const na::Event& event) { on_other_event(from, event); },
        [this](bool is_cut) { detect_backlog(is_cut); });
}

[[gnu::noinline]] void Context::detect_backlog(bool is_cut) {
    if (!loop_.backlog().is_lasting(is_cut, now(), clock_.now())) return;
    for (FrameSink* sink : router_.watchers()) sink->on_backlog();
}

// ---- the turn --------------------------------------------------------------------------------

Turn Context::turn(TimePoint now) noexcept {
    if (current_) [[unlikely]] {
        return turn_nested(now);
    }
    current_ = this;
    std::uint32_t events = 0;
    EndpointSlot* const slot = loop_.fast_slot();
    if (slot) [[likely]] {
        thread_.store(&current_, std::memory_order_relaxed);
    }
    if (!slot || !submissions_.empty()) [[unlikely]] {
        events = turn_with_work(now);
    } else {
        loop_.set_now(now);
        events = poll_endpoint(*slot);
        loop_.timers().advance(now);
        if (slot->unflushed) slot->flush();
    }
    WEFT_DCHECK(current_ == this || is_forked());
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

// Any number of endpoints, submissions and deferred work.
std::uint32_t Context::turn_with_work(TimePoint now) {
    if (is_forked()) base::abort_forked("a turn of the runtime");
    // Without the fast slot each turn runs this: end_borrowing() waits for borrowed turns.
    loop_.begin(now, has_turned() || end_borrowing());
    bind_thread();
    if (std::exchange(armed_, false)) wake();
    std::uint32_t events = run_submissions() + loop_.run_deferred();
    events += loop_.poll_all([this](EndpointSlot& slot) { return poll_endpoint(slot); });
    loop_.finish(now);
    return events;
}

std::uint32_t Context::run_submissions() {
    std::uint32_t ran = 0;
    // Bounded, so that a thread that submits without end cannot starve the network.
    while (ran < 256) {
        Submission* const submission = submissions_.pop();
        if (!submission) break;
        submission->finish(*submission, Submission::Use::run);
        loop_.check_fork();
        ++ran;
    }
    return ran;
}

void Context::on_other_event(EndpointSlot& slot, const na::Event& event) {
    Peer* peer = slot.peer_of(event.peer);
    switch (event.kind) {
        case na::EventKind::peer_up: peers_.on_up(slot, event); break;
        case na::EventKind::peer_down:
            if (peer) {
                const Code code = event.code == Code::ok ? Code::unavailable : event.code;
                peers_.on_down(slot, *peer, fail(code, slot.endpoint->error()));
            }
            break;
        case na::EventKind::writable:
            if (peer) peers_.on_room(*peer);
            break;
        case na::EventKind::rma_done:
            // With fenced_by_end the peer itself moves the data: a completion is an answer.
            if (peer && event.code == Code::ok && slot.caps.fenced_by_end)
                peer->pulse.has_answered = true;
            if (RmaSink* const sink = router_.rma_sink()) {
                sink->on_rma_done(event.cookie, event.code,
                                  event.code == Code::ok ? "" : slot.endpoint->error());
            }
            break;
        case na::EventKind::region_fenced:
            if (RmaSink* const sink = router_.rma_sink()) {
                sink->on_region_fenced(event.region, slot);
            }
            break;
        case na::EventKind::message: break;
    }
    loop_.check_fork();
}

// Several frames, or a malformed message.
void Context::on_frames(Peer& peer, ByteView message) {
    loop_.backlog().on_many_frames();
    const PeerRef ref = peer.ref;
    const bool whole = for_each_frame(message, [&](FrameHead head, ByteView frame) {
        router_.dispatch(peer, head, frame);
        // User code may have removed the peer, or the frame may have failed it.
        return !router_.has_failed() && peer.state == PeerState::up && peer.ref == ref;
    });
    if (!whole && !router_.has_failed() && peer.state == PeerState::up && peer.ref == ref) {
        close_malformed(peer, "a message with impossible frame lengths");
    }
    if (router_.has_failed()) close_failed_peer();
}

void Context::close_failed_peer() {
    loop_.check_fork();
    WEFT_DCHECK(in_turn() && router_.has_failed());
    const auto [ref, why] = router_.take_failed();
    Peer* const peer = find(ref);
    if (!peer || peer->state != PeerState::up) return;
    log_.write_rate_limited(LogLevel::warning, now(), peer->uri + ": " + std::string(why.text()));
    drop_connection(*peer, why);
}

void Context::close_malformed(Peer& peer, std::string_view reason) {
    ++malformed_peers_;
    record_event("broken", peer.uri);
    fail_connection(
        peer, fail(Code::unavailable, "connection closed: the peer sent " + std::string(reason)));
}

std::string Context::why_waiting(const Peer& peer) {
    if (peer.state != PeerState::connecting || !peer.na_id) return {};
    return peer.endpoint->endpoint->why_waiting(peer.na_id);
}

TimePoint Context::inherited_deadline() {
    const auto* const here = static_cast<const Context*>(current_);
    const CallScope* const scope = here ? here->scope() : nullptr;
    return scope ? scope->deadline : never;
}

bool Context::arm() {
    WEFT_DCHECK(!in_turn());
    waker_.begin_sleep();
    armed_ = submissions_.empty() && loop_.arm();
    loop_.clear_fast_slot();
    if (!armed_) waker_.cancel_sleep();
    return armed_;
}

void Context::disarm() {
    WEFT_DCHECK(!in_turn());
    armed_ = false;
    waker_.end_sleep();
}

void Context::close_endpoints() noexcept {
    WEFT_ASSERT(is_closed());
    peers_.close_lingering();
    loop_.close_endpoints();
}

void Context::close_submissions() {
    WEFT_ASSERT(!is_entered());
    unbind_thread();  // After-end work runs on any thread.
    after_end_.begin();
}

// ---- work of any thread ------------------------------------------------------------------------

void Context::post(Function<void()> work) {
    if (has_ended() && is_forked()) [[unlikely]] {
        return base::report_forked("work that is posted is dropped");
    }
    if (!work) [[unlikely]]
        detail::refuse_empty("Executor::post()");
    post(*std::make_unique<PostedWork>(std::move(work)).release());
}

void Context::post(Submission& submission) {
    if (has_ended()) [[unlikely]]
        after_end_.stamp(submission);
    submissions_.push(submission);
    if (submissions_.is_closed_by_now()) [[unlikely]]
        return after_end_.run();
    wake();
}

void Context::offload(Function<void()> work) {
    if (is_forked()) return base::report_forked("offloaded work is dropped");
    if (!work) detail::refuse_empty("Executor::offload()");
    // Without a pool (simulations: one thread, one order) the work runs as a submission.
    if (pool_) {
        pool_->run(std::move(work), in_turn() && scope() != nullptr);
    } else {
        post([this, work = std::move(work)]() mutable { run_offloaded(work); });
    }
}

// The other work of the context waits for it.
void Context::run_offloaded(Function<void()>& work) {
    const base::SteadyClock real;
    const TimePoint began = real.now();
    const base::ThreadUsage before = base::thread_usage();
    work();
    const base::ThreadUsage after = base::thread_usage();
    const Duration waited = (real.now() - began) - (after.cpu_time - before.cpu_time);
    if (waited < slow_work || after.voluntary_switches == before.voluntary_switches) return;
    if (std::exchange(has_logged_slow_, true)) return;
    log_.warning("offloaded work waited for " + std::to_string(waited / 1ms) +
                 " ms on a runtime that has no thread for it (RuntimeOptions::manual, a "
                 "simulation), and all else waited, too; for a pause, which takes virtual time in "
                 "a simulation, co_await weft::sleep_for()");
}

// ---- frames that wait ------------------------------------------------------------------------

void Context::commit_queued(Peer& peer, const Claim& claim, std::size_t bytes) {
    WEFT_DCHECK(claim.queued && claim.data == claim.queued->frame().data());
    peers_.queues().push(peer, *claim.queued, bytes);
    if (peer.state == PeerState::idle) connect(peer);
}

std::uint64_t Context::waiting_frames() {
    std::uint64_t all = 0;
    peers_.for_each([&](const Peer& peer) { all += peer.queue.frames; });
    return all;
}

}  // namespace core
}  // namespace weft
