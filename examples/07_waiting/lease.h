// Work under a lease: the work ends when the lease can't be renewed, before another holder gets it.
#pragma once

#include <weft/combine.h>

#include "waiting.weft.h"

inline constexpr weft::Duration lease_time = std::chrono::seconds(1);
// The holder ends its work 10 ms before the lease ends, because a timer may be a millisecond late.
inline constexpr weft::Duration held_time = lease_time - std::chrono::milliseconds(10);

// Renews the lease after a third of its time and retries until that succeeds. Returns the new end.
inline weft::Task<weft::Result<weft::TimePoint>> renewed(weft::Channel server, demo::Claim claim) {
    while (true) {
        if (weft::Status slept = co_await weft::sleep_for(lease_time / 3); !slept.ok()) {
            co_return slept;
        }
        const weft::TimePoint asked = weft::now();
        const auto term = co_await demo::LeasesClient(server).Take(claim);
        if (term) co_return asked + held_time;
    }
}

// Completes when the lease ends.
inline weft::Task<weft::Status> hold(weft::Channel server, demo::Claim claim, weft::TimePoint end) {
    while (true) {
        const auto later = co_await with_timeout(end - weft::now(), renewed(server, claim));
        if (!later) co_return later.status();
        end = *later;
    }
}

// The result of the work, or the reason why it was dropped.
inline weft::Task<weft::Status> with_lease(weft::Channel server, demo::Claim claim,
                                           weft::Task<weft::Status> work) {
    const weft::TimePoint asked = weft::now();
    const auto term = co_await demo::LeasesClient(server).Take(claim);
    if (!term) co_return term.status();
    // This host or the reply may have been delayed for longer than the lease lasts.
    if (weft::now() >= asked + held_time) {
        co_return weft::fail(weft::Code::deadline_exceeded, "the lease expired in transit");
    }
    auto ended = co_await when_any(hold(server, claim, asked + held_time), std::move(work));
    co_return std::move(ended).value();
}
