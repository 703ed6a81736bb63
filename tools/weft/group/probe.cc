#include "group/probe.h"

#include <algorithm>
#include <span>

#include <weft/runtime.h>

#include "cli/progress_bar.h"
#include "ping.h"

namespace weft::tool {

namespace {

// A member takes one or two descriptors, and a process may have 1024.
constexpr std::size_t members_at_a_time = 256;

// Uses one runtime for all of `members`; its end closes their connections.
Status probe_some(std::span<const Member> members, Duration timeout, std::span<ProbeResult> results,
                  ProgressBar& bar) {
    RuntimeOptions with;
    with.manual = true;
    Result<Runtime> runtime = Runtime::create(with);
    if (!runtime) return std::move(runtime).status();
    std::size_t left = members.size();
    std::vector<Channel> channels;
    for (std::size_t i = 0; i < members.size(); ++i) {
        ProbeResult* const answer = &results[i];
        const auto ended = [answer, &left, &bar](Status status) {
            answer->status = std::move(status);
            bar.add(1);
            --left;
        };
        Result<Channel> channel = runtime->connect(members[i].uris);
        if (!channel) {
            ended(std::move(channel).status());
            continue;
        }
        const TimePoint start = std::chrono::steady_clock::now();
        channel->call(ping_method, as_bytes("ping"), {.timeout = timeout},
                      [answer, ended, start](const Status& status, ByteView) {
                          answer->trip = std::chrono::steady_clock::now() - start;
                          ended(status);
                      });
        channels.push_back(*std::move(channel));
    }
    runtime->turn_until([&] { return left == 0; }, Duration::max());
    return {};
}

}  // namespace

Result<std::vector<ProbeResult>> probe(const GroupView& view, Duration timeout, bool progress) {
    std::vector<ProbeResult> results(view.size());
    ProgressBar bar(view.size(), progress, ProgressBar::Unit::members);
    for (std::size_t from = 0; from < results.size(); from += members_at_a_time) {
        const std::size_t some = std::min(members_at_a_time, results.size() - from);
        Status status = probe_some(std::span(view.members()).subspan(from, some), timeout,
                                   std::span(results).subspan(from, some), bar);
        if (!status.ok()) return status;
    }
    return results;
}

}  // namespace weft::tool
