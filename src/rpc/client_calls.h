// The calls of a client from submit() to their completion, and how many there were.
#pragma once

#include <array>

#include "rpc/client_call.h"

namespace weft::rpc {

struct ClientCalls : base::SlotTable<ClientCall> {
    explicit ClientCalls(std::uint16_t member)
        : SlotTable(1u << 22, core::OperationTag::bits(member)) {}

    struct Counters {
        std::uint64_t late_replies = 0;
        std::uint64_t lost_connections = 0;  // With calls that wait for a new one.
        std::uint64_t resumed = 0;           // Sessions.
        std::uint64_t resent = 0;  // Calls that the server had not received, or that may run twice.
        std::uint64_t retried = 0;  // Calls that the server pushed back.
        std::uint64_t submitted = 0;
        std::array<std::uint64_t, code_max + 1> completed{};  // By code.
    };

    // Every submitted call has completed once or is in flight.
    bool is_balanced() const {
        std::uint64_t completed = 0;
        for (const std::uint64_t count : counters.completed) completed += count;
        return counters.submitted == completed + taken();
    }

    Counters counters;
    const Status ok = Status().with_effect(Effect::applied).with_stage(Stage::executing);
    bool closed = false;  // Calls complete at once.
};

}  // namespace weft::rpc
