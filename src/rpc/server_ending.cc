// Ends of calls other than by their handlers, and the end of the server.
#include <exception>
#include <unordered_set>

#include "base/assert.h"
#include "base/fork.h"
#include "base/thread_annotations.h"
#include "rpc/server.h"

namespace weft::rpc {

// Servers that have their runtime. A forked child finds none.
struct LiveServers {
    base::Mutex mutex;
    std::unordered_set<const Server*> all WEFT_GUARDED_BY(mutex);
};

void Server::register_live() {
    auto& live = base::per_process<LiveServers>();
    const base::MutexLock lock(live.mutex);
    live.all.insert(this);
}

bool Server::is_live(const Server* server) {
    auto& live = base::per_process<LiveServers>();
    const base::MutexLock lock(live.mutex);
    return live.all.count(server) != 0;
}

void log_thrown_by_handler(core::Context* context, const std::string& method,
                           std::exception_ptr thrown) {
    core::log_thrown(context, method + ": the handler threw", thrown);
}

void Server::on_cancel(core::Peer& peer, ByteView frame) {
    const auto wire = base::load<CancelHeader>(frame.data()).call;
    ServerSession& session = *server_session(peer);
    if (wire.slot >= session.slots()) return;
    const Slot& slot = session.slot(wire.slot);
    if (slot.call && slot.sequence == wire.sequence) cancel(*slot.call);
}

void Server::cancel(ServerCall& call) {
    WEFT_ASSERT(call.is_open());
    if (std::exchange(call.cancelled, true)) return;
    call.needs_cleanup = true;
    if (call.fetch) return bulk_.rendezvous.cancel(call.fetch);
    // Each callback below may answer the call, which ends it.
    const base::SlotId id = base::SlotTable<ServerCall>::entry_of(call).id();
    call.cancel_operations();
    if (!calls_.find(id)) return;
    // Moved out of the record first.
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
    WEFT_ASSERT(is_draining() && calls_.taken() == 0);
    if (phase_ == ServerPhase::draining) {
        phase_.move_to(ServerPhase::ended);
        methods_.close_all();
    }
    sessions_.for_each([&](ServerSession& session) { send_session_ended(session); });
}

void Server::send_session_ended(ServerSession& session) {
    if (!session.peer || session.is_ended) return;
    session.is_ended = send_session_grant(*session.peer, SessionReply::ended, nullptr);
}

void Server::shutdown(const Status& why) {
    refuse_all();
    calls_.for_each([&](Entry& entry) {
        const base::SlotId id = entry.id();
        cancel(entry.value);
        if (!calls_.find(id)) return;
        if (LocalCompletion done = std::move(entry.value.local)) done(why, {});
    });
    window_.stop();
    while (ServerSession* session = sessions_.any()) end_session(*session);
    // Handlers may own Calls, which keep this server alive.
    methods_.drop_handlers();
}

void Server::on_runtime_gone() {
    phase_.move_to(ServerPhase::runtime_gone);
    {
        auto& live = base::per_process<LiveServers>();
        const base::MutexLock lock(live.mutex);
        live.all.erase(this);
    }
    // The coroutines wait for operations of a context that is being destroyed.
    calls_.for_each([](Entry& entry) {
        entry.value.needs_cleanup = true;
        entry.value.release_operations();
    });
    if (calls_.taken() == 0) delete this;
}

}  // namespace weft::rpc
