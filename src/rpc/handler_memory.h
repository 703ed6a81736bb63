// The memory that the calls in handlers hold at a server, and its bounds.
#pragma once

#include <weft/options.h>

#include "base/assert.h"
#include "core/budget.h"
#include "core/context_options.h"
#include "rpc/server_call.h"

namespace weft::rpc {

// The defaults are those of RuntimeOptions.
struct ServerLimits {
    // Calls in handlers, and the bytes of their requests over small_request_bytes; further calls
    // are pushed back.
    std::uint32_t handlers_max = RuntimeOptions().handlers_max;
    std::size_t handler_bytes_max = RuntimeOptions().handler_bytes_max;
    std::size_t parsed_bytes_max =
        core::parsed_bytes_of(RuntimeOptions());  // Of messages parsed from requests in handlers.
    // Of the first two, in a runtime with several contexts; nullptr: there is one.
    std::shared_ptr<core::Budgets> budgets;
};

class HandlerMemory {
  public:
    explicit HandlerMemory(const ServerLimits& limits)
        : limits_(limits),
          large_limit_(core::budget_of(limits.budgets, &core::Budgets::handler_bytes),
                       limits.handler_bytes_max) {}
    const ServerLimits& limits() const { return limits_; }

    // A single large request is admitted whatever its size.
    bool has_room(std::size_t bytes) {
        return large_ == 0 || large_ + bytes <= large_limit_.limit() ||
               large_limit_.reach(large_, bytes);
    }
    // As core::FrameSink::trim_shares().
    bool trim_shares() {
        large_limit_.trim(large_);
        return large_limit_.has_extra();
    }
    void hold_large(ServerCall& call, std::size_t bytes) {
        WEFT_DCHECK(has_room(bytes) && call.large_bytes == 0);
        call.large_bytes = bytes;
        large_ += bytes;
    }
    // How much more the call may hold for its parsed request: a client may hold half of the bytes
    // that the others leave, and so may each call of this process.
    std::size_t parsed_room(const ServerCall& call) const {
        const std::size_t own = call.session ? call.session->parsed_bytes : 0;
        WEFT_DCHECK(parsed_ >= own && parsed_ - own <= limits_.parsed_bytes_max);
        const std::size_t share = (limits_.parsed_bytes_max - (parsed_ - own)) / 2;
        return share - std::min(share, own);
    }
    void hold_parsed(ServerCall& call, std::size_t bytes) {
        WEFT_DCHECK(bytes <= parsed_room(call));
        call.parsed_bytes += bytes;
        parsed_ += bytes;
        if (call.session) call.session->parsed_bytes += bytes;
    }
    // Beyond the limit of all calls handlers fetch the bytes as bulk.
    bool has_inline_room(std::size_t bytes) const {
        return inline_ + bytes <= inline_bulk_held_bytes_max;
    }
    void hold_inline(std::size_t bytes) {
        WEFT_DCHECK(has_inline_room(bytes));
        inline_ += bytes;
    }
    void release_inline(ServerCall& call) {
        if (!call.inline_bulk) return;
        WEFT_ASSERT(inline_ >= call.inline_bulk->bytes());
        inline_ -= call.inline_bulk->bytes();
        call.inline_bulk = nullptr;
    }
    void release_all(ServerCall& call) {
        WEFT_ASSERT(large_ >= call.large_bytes && parsed_ >= call.parsed_bytes);
        release_inline(call);
        large_ -= std::exchange(call.large_bytes, 0);
        parsed_ -= call.parsed_bytes;
        WEFT_ASSERT(!call.session || call.session->parsed_bytes >= call.parsed_bytes);
        if (call.session) call.session->parsed_bytes -= call.parsed_bytes;
        call.parsed_bytes = 0;
    }
    bool is_unused() const { return inline_ == 0 && large_ == 0 && parsed_ == 0; }
    std::size_t large() const { return large_; }    // Of large requests.
    std::size_t parsed() const { return parsed_; }  // Of messages parsed from requests.

  private:
    static constexpr std::size_t inline_bulk_held_bytes_max = std::size_t{16} << 20;

    const ServerLimits limits_;
    core::Budget::Share large_limit_;
    std::size_t inline_ = 0;
    std::size_t large_ = 0;
    std::size_t parsed_ = 0;
};

}  // namespace weft::rpc
