// The client's state text, for users.
#include <algorithm>
#include <vector>

#include "base/duration_text.h"
#include "rpc/client.h"

namespace weft::rpc {

using base::duration_text;

static std::string_view name_of(SessionState state) {
    switch (state) {
        case SessionState::none: return "no session";
        case SessionState::beginning: return "beginning";
        case SessionState::open: return "open";
        case SessionState::resuming: return "resuming";
        case SessionState::reconnecting: return "reconnecting";
        case SessionState::ended: return "ended by the server";
    }
    return "?";
}

static std::string text_of(ClientSession& session) {
    std::uint32_t backing_off = 0;
    session.backing_off.for_each([&](const ClientCall&) { ++backing_off; });
    std::string line = "  " + session.peer.uri + ": " + std::string(name_of(session.state)) + ", " +
                       std::to_string(session.busy) + " of " + std::to_string(session.window) +
                       " slots, " + std::to_string(session.waiting.size()) + " calls wait (" +
                       std::to_string(session.waiting.bytes()) + " bytes), " +
                       std::to_string(backing_off) + " rest, " +
                       std::to_string(session.budget.retries_left()) + " retries left";
    if (!session.last_error.empty()) line += "; " + session.last_error;
    return line + "\n";
}

std::string Client::text_of(const ClientCall& call, TimePoint now) const {
    const std::uint64_t method = call.slot      ? call.slot->method
                                 : call.waiting ? call.waiting->method
                                                : 0;
    std::string name = sampler_.name_of(method);
    if (name.empty()) name = "a call";
    const std::string left =
        call.deadline == never ? "no deadline" : duration_text(call.deadline - now) + " left";
    const std::string to = call.session ? " to " + call.session->peer.uri : std::string();
    return "  " + name + to + ": " + std::string(weft::name_of(call.stage)) + ", " + left + "\n";
}

std::uint64_t Client::in_use() const {
    std::uint64_t busy = 0;
    for (const ClientSession& session : sessions_) {
        busy += session.busy + (capacity_.limits().sent_bytes_max - session.byte_credits);
    }
    return busy + capacity_.sent_calls() + capacity_.sent_bytes();
}

base::Figures Client::figures() const {
    const Counters& counters = calls_.counters;
    std::vector<base::Figures::Figure> all{{"submitted", counters.submitted},
                                           {"in flight", calls_.taken()},
                                           {"sent", capacity_.sent_calls()},
                                           {"bytes sent", capacity_.sent_bytes()},
                                           {"bytes wait", capacity_.waiting_bytes()}};
    for (std::size_t code = 0; code < counters.completed.size(); ++code)
        all.push_back({weft::name_of(static_cast<Code>(code)), counters.completed[code]});
    for (const base::Figures::Figure& one :
         {base::Figures::Figure{"connections lost", counters.lost_connections},
          {"sessions resumed", counters.resumed},
          {"calls sent again", counters.resent},
          {"retried", counters.retried},
          {"replies too late", counters.late_replies}})
        all.push_back(one);
    base::Figures figures;
    figures.add_line("calls", std::move(all));
    return figures;
}

std::string Client::state(std::size_t lines_max) {
    const TimePoint now = context_.clock().now();
    std::string text = "calls: " + std::to_string(calls_.counters.submitted) + " submitted, " +
                       std::to_string(calls_.taken()) + " in flight, " +
                       std::to_string(capacity_.sent_calls()) + " sent (" +
                       std::to_string(capacity_.sent_bytes()) + " bytes), " +
                       std::to_string(capacity_.waiting_bytes()) + " bytes wait\n ";
    for (std::size_t code = 0; code < calls_.counters.completed.size(); ++code) {
        if (calls_.counters.completed[code] == 0) continue;
        text += " " + std::string(weft::name_of(static_cast<Code>(code))) + " " +
                std::to_string(calls_.counters.completed[code]);
    }
    text += "\n  " + std::to_string(calls_.counters.lost_connections) + " connections lost, " +
            std::to_string(calls_.counters.resumed) + " sessions resumed, " +
            std::to_string(calls_.counters.resent) + " calls sent again, " +
            std::to_string(calls_.counters.retried) + " retried, " +
            std::to_string(calls_.counters.late_replies) + " replies too late\n";
    std::size_t lines = 0;
    for (ClientSession& session : sessions_) {
        if (++lines > lines_max) break;
        text += rpc::text_of(session);
    }
    // The calls with the earliest deadlines.
    std::vector<const ClientCall*> first;
    calls_.for_each([&](CallEntry& entry) { first.push_back(&entry.value); });
    const std::size_t shown = std::min(first.size(), lines_max);
    std::partial_sort(
        first.begin(), first.begin() + static_cast<std::ptrdiff_t>(shown), first.end(),
        [](const ClientCall* a, const ClientCall* b) { return a->deadline < b->deadline; });
    for (std::size_t i = 0; i < shown; ++i) text += text_of(*first[i], now);
    sampler_.for_each([&](const Sampler::MethodStats& stats) {
        text += "  " + stats.method + ": " + base::text_of(stats.ok) + ", " +
                std::to_string(stats.failed) + " failed (one call in " +
                std::to_string(calls_per_sample) + ")\n";
    });
    return text;
}

}  // namespace weft::rpc
