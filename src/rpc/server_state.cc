// The server's state text, for users, and the report of overdue handlers.
#include <algorithm>
#include <vector>

#include "base/duration_text.h"
#include "rpc/server.h"

namespace weft::rpc {

using base::duration_text;

static std::string text_of(const ServerCall& call, TimePoint now) {
    std::string text = "  " + call.method->name;
    if (call.session) text += " for " + call.session->client;
    if (call.fetch) text += ", its body is being fetched";
    if (call.cancelled) text += ", cancelled";
    if (call.deadline == never) return text + ", no deadline\n";
    const Duration left = call.deadline - now;
    return text +
           (left > Duration::zero() ? ", " + duration_text(left) + " left"
                                    : ", " + duration_text(-left) + " overdue") +
           "\n";
}

SessionId Server::session_of(const Call& call) {
    const ServerSession* const session = call.call_ ? call.call_->session : nullptr;
    return session ? session->id : SessionId();
}

std::size_t Server::lost_sessions() {
    std::size_t lost = 0;
    sessions_.for_each([&](const ServerSession& session) { lost += session.peer == nullptr; });
    return lost;
}

std::size_t Server::awaited_sessions() {
    const TimePoint now = context_.clock().now();
    std::size_t awaited = 0;
    sessions_.for_each(
        [&](const ServerSession& session) { awaited += now < session.awaited_until; });
    return awaited;
}

std::string Server::state(std::size_t lines_max) {
    const TimePoint now = context_.clock().now();
    std::string text =
        "handlers: " + std::to_string(calls_.taken()) + " calls (" +
        std::to_string(memory_.large()) + " bytes of large requests, " +
        std::to_string(memory_.parsed()) + " of parsed ones), window " + std::to_string(window()) +
        "; " + std::to_string(sessions_.size()) + " sessions, " + std::to_string(lost_sessions()) +
        " of them without a connection\n  " + std::to_string(counters_.pushed_back) +
        " calls pushed back, " + std::to_string(counters_.expired) + " expired before they ran, " +
        std::to_string(counters_.unknown_methods) + " of unknown methods, " +
        std::to_string(counters_.unanswered) + " not answered by their handler, " +
        std::to_string(counters_.replies_resent) + " answered again\n";
    std::vector<const ServerCall*> first;
    calls_.for_each([&](Entry& entry) { first.push_back(&entry.value); });
    const std::size_t shown = std::min(first.size(), lines_max);
    std::partial_sort(
        first.begin(), first.begin() + static_cast<std::ptrdiff_t>(shown), first.end(),
        [](const ServerCall* a, const ServerCall* b) { return a->deadline < b->deadline; });
    for (std::size_t i = 0; i < shown; ++i) text += text_of(*first[i], now);
    methods_.for_each([&](const Method& method) {
        if (method.latencies.count() == 0) return;
        text += "  " + method.name + ": in the handler " + base::text_of(method.latencies) +
                " (one call in " + std::to_string(calls_per_sample) + ")\n";
    });
    return text;
}

base::Figures Server::figures() {
    base::Figures figures;
    figures.add_line("handlers", {{"calls", calls_.taken()},
                                  {"bytes of large requests", memory_.large()},
                                  {"bytes of parsed ones", memory_.parsed()},
                                  {"sessions", sessions_.size()},
                                  {"sessions without a connection", lost_sessions()},
                                  {"calls pushed back", counters_.pushed_back},
                                  {"expired before they ran", counters_.expired},
                                  {"of unknown methods", counters_.unknown_methods},
                                  {"not answered by their handler", counters_.unanswered},
                                  {"answered again", counters_.replies_resent}});
    return figures;
}

// Reports a handler long past its deadline; a client that ended the call has sent a cancel.
void Server::report_overdue_handlers(ServerSession& session) {
    const TimePoint now = context_.now();
    if (!overdue_.is_due(now)) return;
    const ServerCall* worst = nullptr;
    session.for_each_call([&](ServerCall& call) {
        if (call.deadline == never || now < call.deadline + overdue_report_after) return;
        if (!worst || call.deadline < worst->deadline) worst = &call;
    });
    if (!worst) return;
    overdue_.report("a handler overstays:" + text_of(*worst, now), now);
}

bool Server::trim_shares() {
    handlers_.trim(calls_.taken());
    return memory_.trim_shares() || handlers_.has_extra();
}

void Server::on_heartbeat(core::Peer& peer) {
    if (ServerSession* const session = server_session(peer)) report_overdue_handlers(*session);
}

}  // namespace weft::rpc
