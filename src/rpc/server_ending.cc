// How calls and the server itself are ended by others than their handlers.
#include <exception>
#include <mutex>
#include <unordered_set>

#include "base/assert.h"
#include "base/fork.h"
#include "base/mutant.h"
#include "rpc/server.h"

namespace weft::rpc {

// Those that have not left. A forked child finds none.
struct ServersThere {
    std::mutex mutex;
    std::unordered_set<const Server*> all;
};

void Server::be_there() {
    auto& there = base::per_process<ServersThere>();
    const std::lock_guard lock(there.mutex);
    there.all.insert(this);
}

bool Server::is_there(const Server* server) {
    auto& there = base::per_process<ServersThere>();
    const std::lock_guard lock(there.mutex);
    return there.all.count(server) != 0;
}

void log_thrown_by_handler(core::Context* context, const std::string& method,
                           std::exception_ptr thrown) {
    core::log_thrown(context, method + ": the handler threw", thrown);
}

void Server::on_cancel(core::Peer& peer, ByteView frame) {
    const auto wire = base::load<CancelHeader>(frame.data()).call;
    ServerSession& session = *peer.server_session;
    if (wire.slot >= session.slots()) return;
    const Slot& slot = session.slot(wire.slot);
    if (slot.call && slot.sequence == wire.sequence) cancel(*slot.call);
}

void Server::cancel(ServerCall& call) {
    if (std::exchange(call.cancelled, true)) return;
    call.marked = true;
    if (call.fetch) return bulk_.staging.cancel(call.fetch);
    // Each of what follows may answer, and so end, the call.
    const base::SlotId id = base::SlotTable<ServerCall>::entry_of(call).id();
    if (!base::is_mutated(base::Mutant::nested_forgotten)) call.cancel_operations();
    if (!calls_.find(id)) return;
    // Out of the record first.
    Function<void()> notice = std::move(call.on_cancel);
    std::stop_source(call.stop).request_stop();
    if (notice && calls_.find(id)) notice();
}

void Server::drain() {
    refuse_all();
    calls_.for_each([](Entry& entry) {
        if (Function<void()> notice = std::move(entry.value.on_drain)) notice();
    });
}

void Server::end_sessions() {
    if (base::is_mutated(base::Mutant::end_unsaid)) return;
    WEFT_DCHECK(draining_ && calls_.taken() == 0);
    if (!std::exchange(is_ended_, true)) methods_.close_all();
    sessions_.for_each([&](ServerSession& session) { say_ended(session); });
}

void Server::say_ended(ServerSession& session) {
    if (!session.peer || session.is_over) return;
    session.is_over = send_grant(*session.peer, Verdict::ended, nullptr);
}

void Server::shutdown(const Status& why) {
    refuse_all();
    calls_.for_each([&](Entry& entry) {
        const base::SlotId id = entry.id();
        cancel(entry.value);
        if (!calls_.find(id)) return;
        if (LocalCompletion done = std::move(entry.value.local)) done(why, {});
    });
    context_.timers().cancel(widening_);
    while (ServerSession* session = sessions_.any()) end_session(*session);
    // What handlers hold may hold this, Calls above all.
    methods_.drop_handlers();
}

void Server::leave() {
    left_ = true;
    {
        auto& there = base::per_process<ServersThere>();
        const std::lock_guard lock(there.mutex);
        there.all.erase(this);
    }
    // What their coroutines still wait with is in a context that goes.
    calls_.for_each([](Entry& entry) {
        entry.value.marked = true;
        entry.value.let_go();
    });
    if (calls_.taken() == 0) delete this;
}

}  // namespace weft::rpc
