#include <weft/call.h>

#include "base/assert.h"
#include "core/offload_pool.h"
#include "rpc/server.h"

namespace weft {

Call& Call::operator=(Call&& other) noexcept {
    if (this != &other) {
        Call ends(std::move(*this));
        server_ = other.server_;
        call_ = std::exchange(other.call_, nullptr);
    }
    return *this;
}

TimePoint Call::deadline() const { return call_ ? call_->deadline : never; }
Duration Call::time_left() const {
    if (!call_ || server_->is_runtime_gone()) return Duration::zero();
    if (call_->deadline == never) return no_timeout;
    return std::max(call_->deadline - server_->context_.clock().now(), Duration::zero());
}
bool Call::cancelled() const {
    if (!call_) return false;
    require_thread("Call::cancelled(), for other threads Call::stop_token()");
    return call_->cancelled;
}
std::string Call::peer() const {
    if (!call_) return {};
    require_thread("Call::peer()");
    return call_->session ? call_->session->client : std::string();
}
ClientId Call::client() const {
    if (!call_) return ClientId::none;
    require_thread("Call::client()");
    return call_->session ? ClientId{call_->session->client_id} : ClientId::none;
}
std::string_view Call::method() const {
    if (!call_) return {};
    return call_->method->name;
}

std::stop_token Call::stop_token() const {
    if (!call_) return {};
    require_thread("Call::stop_token()");
    call_->needs_cleanup = true;
    if (!call_->stop.stop_possible()) {
        call_->stop = std::stop_source();
        if (call_->cancelled) call_->stop.request_stop();
    }
    return call_->stop.get_token();
}

void Call::on_cancel(Function<void()> notice) {
    if (!call_) return;
    require_thread("Call::on_cancel()");
    call_->needs_cleanup = true;
    call_->on_cancel = std::move(notice);
    if (call_->cancelled) {
        if (Function<void()> now = std::move(call_->on_cancel)) now();
    }
}

bool Call::draining() const {
    if (!call_) return false;
    require_thread("Call::draining()");
    return server_->is_draining();
}

void Call::on_drain(Function<void()> notice) {
    if (!call_) return;
    require_thread("Call::on_drain()");
    if (server_->is_draining()) return notice ? notice() : void();
    call_->needs_cleanup = true;
    call_->on_drain = std::move(notice);
}

OperationId Call::get(const RegionRef& from, std::uint64_t offset, Buffer local,
                      TransferCompletion done) const {
    if (call_) require_thread("Call::get()");
    if (!done) detail::refuse_empty("Call::get(), as its completion");
    return transfer(false, from, offset, std::move(local), std::move(done));
}

OperationId Call::put(const RegionRef& to, std::uint64_t offset, Buffer local,
                      TransferCompletion done) const {
    if (call_) require_thread("Call::put()");
    if (!done) detail::refuse_empty("Call::put(), as its completion");
    return transfer(true, to, offset, std::move(local), std::move(done));
}

OperationId Call::transfer(bool put, const RegionRef& remote, std::uint64_t offset, Buffer local,
                           TransferCompletion done) const {
    if (!server_) {
        done(weft::fail(Code::failed_precondition,
                        "an empty weft::Call, default-made, has no client to get from or put to"));
        return {};
    }
    const bool has_context = has_server();
    if (has_context && server_->context_.is_forked()) [[unlikely]] {
        done(server_->context_.why_forked());
        return {};
    }
    if (!call_ || !has_context) {
        Status why =
            weft::fail(Code::cancelled, call_ ? "the runtime is gone" : "the call was answered");
        if (!has_context) {
            done(why);  // No later turn would run it.
            return {};
        }
        const bulk::TransferId id =
            server_->bulk_.transfers.conclude(std::move(done), std::move(why));
        return {id.slot, id.generation};
    }
    server_->context_.request_turn();
    if (call_->inline_bulk) {
        if (auto outcome = server_->transfer_inline(*call_, put, remote, offset, local)) {
            const bulk::TransferId id = server_->bulk_.transfers.conclude_nested(
                *call_, std::move(done), *std::move(outcome));
            return {id.slot, id.generation};
        }
    }
    const bulk::TransferId id = server_->bulk_.transfers.start_nested(
        *call_, call_->peer() ? call_->peer()->ref : core::PeerRef(),
        {put ? na::RmaKind::put : na::RmaKind::get, remote, offset, std::move(local),
         call_->deadline},
        std::move(done));
    return {id.slot, id.generation};
}

// An answered Call may outlive its server.
bool Call::has_server() const {
    return call_ ? !server_->is_runtime_gone() : server_ && rpc::Server::is_live(server_);
}

std::size_t Call::reply_bytes_max() const {
    return call_ && !server_->is_runtime_gone() ? server_->bulk_.rendezvous.body_bytes_max() : 0;
}

void Call::require_no_other_thread(const char* called) const {
    WEFT_ASSERT(server_);
    if (server_->is_runtime_gone() || !server_->context_.is_on_other_thread()) return;
    base::abort_misused(called,
                        "called on a thread that does not turn the context of the call: post it "
                        "there (Executor::post()), or co_await offload() what takes long and "
                        "answer after it");
}

void Call::reply_with_status(const Status& status) {
    WEFT_ASSERT(call_);
    server_->reply(*std::exchange(call_, nullptr), status);
}

void Call::fail(const Status& status) {
    if (!call_) return;
    require_thread("Call::fail()");
    if (status.ok()) [[unlikely]]
        return reply_with_status(without_reason("a status that is OK"));
    reply_with_status(status);
}

// The client must not see a failure without a reason as a success.
Status Call::without_reason(const char* given) const {
    WEFT_ASSERT(call_);
    core::log_thrown(has_server() ? &server_->context_ : nullptr,
                     std::string(call_->method->name) + ": Call::fail() was given " + given +
                         ": the client gets INTERNAL",
                     nullptr);
    return weft::fail(Code::internal, "a failure without a reason");
}

void Call::fail(std::exception_ptr thrown) {
    if (!thrown) {
        if (call_) fail(without_reason("no exception").with_effect(Effect::unknown));
        return;
    }
    rpc::log_thrown_by_handler(has_server() ? &server_->context_ : nullptr,
                               call_ ? call_->method->name : "a call that was answered", thrown);
    try {
        std::rethrow_exception(thrown);
    } catch (const core::NoThread& error) {
        // The handler may have had effects before.
        return fail(
            weft::fail(Code::resource_exhausted, error.what()).with_effect(Effect::unknown));
    } catch (...) {
    }
    fail(weft::fail(Code::internal, "the handler threw an exception").with_effect(Effect::unknown));
}

void Call::abandon_transfer(OperationId id) const {
    if (!has_server()) return;
    require_thread("Call::abandon_transfer(), or a transfer of it that is destroyed");
    server_->bulk_.transfers.abandon({id.slot, id.generation});
}

}  // namespace weft
