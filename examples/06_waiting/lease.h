// Work under a lease: it ends when the lease can't be renewed, before another holder gets it.
#pragma once

#include <weft/combine.h>

#include "waiting.weft.h"

inline constexpr weft::Duration lease_time = std::chrono::seconds(1);
// The holder gives it up so much earlier: a timer may be a millisecond late.
inline constexpr weft::Duration held_time = lease_time - std::chrono::milliseconds(10);

// Claims it again after a third of its time, until that succeeds: how long it is held then.
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

// Ends when the lease does.
inline weft::Task<weft::Status> hold(weft::Channel server, demo::Claim claim, weft::TimePoint end) {
    while (true) {
        const auto later = co_await with_timeout(end - weft::now(), renewed(server, claim));
        if (!later) co_return later.status();
        end = *later;
    }
}

// What the work returns, or why it was dropped.
inline weft::Task<weft::Status> with_lease(weft::Channel server, demo::Claim claim,
                                           weft::Task<weft::Status> work) {
    const weft::TimePoint asked = weft::now();
    const auto term = co_await demo::LeasesClient(server).Take(claim);
    if (!term) co_return term.status();
    // This host, or its reply, may have stood still for longer than the lease takes.
    if (weft::now() >= asked + held_time) {
        co_return weft::fail(weft::Code::deadline_exceeded, "the lease was over when it came");
    }
    auto ended = co_await when_any(hold(server, claim, asked + held_time), std::move(work));
    co_return std::move(ended).value();
}
