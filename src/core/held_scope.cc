#include <weft/offload.h>

#include <stdexcept>

#include <weft/combine.h>

#include "base/assert.h"
#include "base/fork.h"
#include "core/context.h"
#include "core/roots.h"

namespace weft::detail {

struct HeldScope::Held : core::InScope {
    explicit Held(core::Context& of) : context(of) {}
    core::Context& context;
};

static core::Context* current_context() { return static_cast<core::Context*>(Executor::current()); }

HeldScope::HeldScope() = default;

HeldScope::~HeldScope() {
    if (!is_under_way_ || process_ != base::OwnerProcess::number()) return;
    base::abort_misused("co_await offload()",
                        "a coroutine was destroyed while work that it offloaded was under way, "
                        "which may use it; let the work end first");
}

bool Level::is_in_dropped() const {
    for (const Level* around = this; around; around = around->outer) {
        if (around->is_dropped) return true;
    }
    return false;
}

RootEnd::RootEnd(Root& of) : root(&of) { of.end = this; }

RootEnd::~RootEnd() {
    if (!root) return;
    root->end = nullptr;
    if (root->held == 0) root->coroutine.destroy();
}

// In whose turns a root is destroyed: at home, if this thread is in a turn of that around the late
// work here. Elsewhere its home may be gone.
static core::Context& place_of_end(const Root& root) {
    core::Context* const home = entered_home(root);
    return home ? *home : *current_context();
}

// Another part of it may be running here, and what was posted before may resume one.
static void end_soon(Root& root) { end_root(root, place_of_end(root)); }

// What waits as often after its runtime began to end, one after the other, does so for ever; and
// what waits again in as many runs of late work, which others begin.
static constexpr std::uint32_t late_waits_max = 100'000;
static constexpr std::uint32_t late_runs_max = 1000;

// Of the tasks that await each other, up to what runs beside others.
static LateWaits& late_waits_of(Level* level) {
    while (level->kind == Level::Kind::task) level = level->outer;
    return level->kind == Level::Kind::branch ? static_cast<Branch*>(level)->late_waits
                                              : static_cast<Root*>(level)->late_waits;
}

// `level`: in the root.
static bool goes_on(core::Context& here, const Root& root, Level* level) {
    if (here.is_ending_waiters()) return true;
    if (root.home != here.number()) return false;  // It lives on.
    LateWaits& waits = late_waits_of(level);
    if (std::exchange(waits.run, here.late_runs()) != here.late_runs()) ++waits.runs;
    if (++waits.count <= late_waits_max && waits.runs <= late_runs_max) return false;
    here.log_late();
    return true;
}

void resume_or_end(std::coroutine_handle<> awaiting, Level* level) {
    core::Context* const here = current_context();
    Root* const root = here && here->is_closed() ? root_of(level) : nullptr;
    if (root && goes_on(*here, *root, level)) return end_soon(*root);
    if (!here || !here->is_dropping()) awaiting.resume();
}

// Until its end it waits for nothing more of the kind, which might come behind that.
bool end_instead(Level* level) noexcept {
    core::Context* const here = current_context();
    if (!here || !here->is_closed()) return false;
    Root* const root = root_of(level);
    if (!root) return false;
    if (goes_on(*here, *root, level)) end_soon(*root);
    return root->is_dropped;
}

// Work of that number is the innermost's no more, nor that of those around it. The outermost of
// these that was dropped; nullptr: none was.
static Level* release(Level* innermost, std::uint32_t works) {
    Level* dropped = nullptr;
    for (Level* level = innermost; level; level = level->outer) {
        level->held -= works;
        if (level->is_dropped) dropped = level;
    }
    return dropped;
}

// It is destroyed once nothing holds it.
static void end_dropped(Level& dropped) {
    if (dropped.held != 0) return;
    if (dropped.kind == Level::Kind::root) {
        if (current_context()) end_soon(static_cast<Root&>(dropped));
    } else if (Fork* const fork = static_cast<Branch&>(dropped).fork) {
        fork->release();
    }
}

void Level::cut() noexcept {
    if (left) left->cut();
    if (!outer) return;
    if (is_left) outer->left = nullptr;
    is_left = false;
    Level* const around = std::exchange(outer, nullptr);
    if (held == 0) return;
    // A program destroyed what was in there, in the middle of something.
    if (Level* const dropped = release(around, held)) end_dropped(*dropped);
}

// One that offloads as often after its runtime began to end does so for ever.
static constexpr std::uint32_t late_works_max = 100;

HeldScope::Begin HeldScope::hold(Level* level) {
    core::Context* const context = current_context();
    if (!context) throw std::logic_error("offload(): " + std::string(nowhere().text()));
    const bool had_begun = std::exchange(is_under_way_, true);
    if (!had_begun) process_ = base::OwnerProcess::number();
    if (!had_begun && level && level->is_in_dropped()) {
        is_under_way_ = false;
        return Begin::dropped;
    }
    Root* const root = context->is_closed() ? root_of(level) : nullptr;
    for (; level; level = level->outer) ++level->held;
    if (had_begun) return Begin::had_begun;
    if (core::Scope* scope = context->scope()) {
        held_ = std::make_unique<Held>(*context);
        scope->add(*held_);
    }
    return root && ++root->late_works > late_works_max ? Begin::over : Begin::now;
}

bool HeldScope::is_dropping() {
    const core::Context* const here = current_context();
    return here && here->is_dropping();
}

void HeldScope::end(const Awaiting& awaiting) {
    is_under_way_ = false;
    const std::unique_ptr<Held> held = std::move(held_);
    if (!awaiting.is_suspended()) return;
    if (Level* const dropped = release(awaiting.level(), 1)) return end_dropped(*dropped);
    if (!held) return awaiting.resume_or_end();
    const core::Context::Within within(held->context, held->scope);
    held->leave();
    awaiting.resume_or_end();  // May destroy this.
}

}  // namespace weft::detail
