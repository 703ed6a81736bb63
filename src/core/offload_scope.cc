#include <weft/offload.h>

#include <memory>
#include <new>
#include <stdexcept>

#include <weft/combine.h>

#include "base/assert.h"
#include "base/fork.h"
#include "core/async_root.h"
#include "core/context.h"

namespace weft::detail {

struct OffloadScope::ScopeNode : core::ScopedOperation {
    explicit ScopeNode(core::Context& of) : context(of) {}
    core::Context& context;
};

static core::Context* current_context() { return static_cast<core::Context*>(Executor::current()); }

OffloadScope::OffloadScope() {
    static_assert(sizeof(ScopeNode) <= node_bytes && alignof(ScopeNode) <= alignof(void*));
}

OffloadScope::ScopeNode& OffloadScope::scope_node() {
    return *std::launder(reinterpret_cast<ScopeNode*>(node_));
}

void OffloadScope::drop_scope_node() {
    if (std::exchange(has_scope_node_, false)) std::destroy_at(&scope_node());
}

OffloadScope::~OffloadScope() {
    drop_scope_node();
    if (!is_under_way_ || process_ != base::OwnerProcess::number()) return;
    base::abort_misused("co_await offload()",
                        "a coroutine was destroyed while work that it offloaded was under way, "
                        "which may use it; let the work end first");
}

bool AsyncFrame::is_in_dropped() const {
    for (const AsyncFrame* around = this; around; around = around->outer) {
        if (around->is_dropped) return true;
    }
    return false;
}

RootDestroyer::RootDestroyer(AsyncRoot& of) : root(&of) {
    RootExtras& extras = of.make_extras();
    WEFT_ASSERT(!extras.end);
    extras.end = this;
}

RootDestroyer::~RootDestroyer() {
    if (!root) return;
    WEFT_ASSERT(root->extras && root->extras->end == this);
    root->extras->end = nullptr;
    if (root->pin_count == 0) root->coroutine.destroy();
}

// The context that destroys a root: its home, if the current after-end work is nested in a turn of
// that; else the current context, since the home may be destroyed.
static core::Context& context_to_end_in(const AsyncRoot& root) {
    core::Context* const home = entered_home_context(root);
    return home ? *home : *current_context();
}

// Not at once: another coroutine of the root may be running here, and earlier posts may resume one.
static void end_root_later(AsyncRoot& root) { end_root(root, context_to_end_in(root)); }

// A coroutine that waits more often than this after its runtime began to end is treated as endless;
// so is one that waits in more runs of after-end work than this.
static constexpr std::uint32_t after_end_waits_max = 100'000;
static constexpr std::uint32_t after_end_runs_max = 1000;

// Shared by tasks that await each other, up to their branch or root.
static AfterEndWaits& after_end_waits_of(AsyncFrame* async_frame) {
    while (async_frame->kind == AsyncFrame::Kind::task) async_frame = async_frame->outer;
    return async_frame->kind == AsyncFrame::Kind::branch
               ? static_cast<Branch*>(async_frame)->after_end_waits
               : static_cast<AsyncRoot*>(async_frame)->after_end_waits;
}

// `async_frame`: below the root.
static bool is_endless(core::Context& here, const AsyncRoot& root, AsyncFrame* async_frame) {
    if (here.after_end().is_destroying_coroutines()) return true;
    if (root.home != here.number()) return false;  // Its runtime has not ended.
    AfterEndWaits& waits = after_end_waits_of(async_frame);
    if (std::exchange(waits.run, here.after_end().runs()) != here.after_end().runs()) ++waits.runs;
    if (++waits.count <= after_end_waits_max && waits.runs <= after_end_runs_max) return false;
    here.after_end().log_endless();
    return true;
}

void resume_or_end(std::coroutine_handle<> awaiting, AsyncFrame* async_frame) {
    core::Context* const here = current_context();
    WEFT_DCHECK(awaiting && !awaiting.done());
    AsyncRoot* const root = here && here->is_closed() ? root_of(async_frame) : nullptr;
    if (root && is_endless(*here, *root, async_frame)) return end_root_later(*root);
    if (!here || !here->after_end().is_dropping()) awaiting.resume();
}

// True for every coroutine of a dropped root: a new wait might complete after its end.
bool begin_foreign_wait(AsyncFrame* async_frame) {
    AsyncRoot* const root = root_of(async_frame);
    if (!root) return false;
    keep_services(*root);
    core::Context* const here = current_context();
    if (!here || !here->is_closed()) return false;
    if (is_endless(*here, *root, async_frame)) end_root_later(*root);
    return root->is_dropped;
}

// Takes `works` pins from the innermost frame and all around it. Returns the outermost of them that
// was dropped; nullptr: none was.
static AsyncFrame* unpin(AsyncFrame* innermost, std::uint32_t works) {
    AsyncFrame* dropped = nullptr;
    for (AsyncFrame* async_frame = innermost; async_frame; async_frame = async_frame->outer) {
        WEFT_ASSERT(async_frame->pin_count >= works);
        async_frame->pin_count -= works;
        if (async_frame->is_dropped) dropped = async_frame;
    }
    return dropped;
}

// Destroys it, unless it is pinned.
static void end_dropped(AsyncFrame& dropped) {
    WEFT_DCHECK(dropped.is_dropped);
    if (dropped.pin_count != 0) return;
    if (dropped.kind == AsyncFrame::Kind::root) {
        if (current_context()) end_root_later(static_cast<AsyncRoot&>(dropped));
    } else if (TaskCombinator* const combinator = static_cast<Branch&>(dropped).combinator) {
        combinator->on_branch_unpinned();
    }
}

void AsyncFrame::unlink_frames() noexcept {
    if (abandoned) abandoned->unlink_frames();
    if (!outer) return;
    WEFT_ASSERT(!is_abandoned || outer->abandoned == this);
    if (is_abandoned) outer->abandoned = nullptr;
    is_abandoned = false;
    AsyncFrame* const around = std::exchange(outer, nullptr);
    if (pin_count == 0) return;
    // The program destroyed an inner coroutine while its offloaded work was in flight.
    if (AsyncFrame* const dropped = unpin(around, pin_count)) end_dropped(*dropped);
}

// A root that offloads more often than this after its runtime began to end is treated as endless.
static constexpr std::uint32_t after_end_offloads_max = 100;

OffloadScope::Begin OffloadScope::pin(AsyncFrame* async_frame) {
    core::Context* const context = current_context();
    if (!context) throw std::logic_error("offload(): " + std::string(no_context_status().text()));
    const bool already_started = std::exchange(is_under_way_, true);
    if (!already_started) process_ = base::OwnerProcess::number();
    if (!already_started && async_frame && async_frame->is_in_dropped()) {
        is_under_way_ = false;
        return Begin::dropped;
    }
    AsyncRoot* const root = context->is_closed() ? root_of(async_frame) : nullptr;
    for (; async_frame; async_frame = async_frame->outer) ++async_frame->pin_count;
    if (already_started) return Begin::already_started;
    if (core::CallScope* scope = context->scope()) {
        scope->add(*::new (static_cast<void*>(node_)) ScopeNode(*context));
        has_scope_node_ = true;
    }
    return root && ++root->after_end_offloads > after_end_offloads_max ? Begin::runtime_ended
                                                                       : Begin::now;
}

bool OffloadScope::is_dropping() {
    core::Context* const here = current_context();
    return here && here->after_end().is_dropping();
}

void OffloadScope::end(const AwaiterSlot& slot) {
    WEFT_ASSERT(is_under_way_);
    is_under_way_ = false;
    core::Context* const context = has_scope_node_ ? &scope_node().context : nullptr;
    core::CallScope* const scope = context ? scope_node().scope : nullptr;
    drop_scope_node();
    if (!slot.is_suspended()) return;
    if (AsyncFrame* const dropped = unpin(slot.async_frame(), 1)) return end_dropped(*dropped);
    if (!context) return slot.resume_or_end();
    const core::Context::ScopeGuard scope_guard(*context, scope);
    slot.resume_or_end();  // May destroy this.
}

}  // namespace weft::detail
