// What really happened to each call of a simulation, recorded outside of it, and checked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <weft/bytes.h>
#include <weft/status.h>
#include <weft/time.h>

#include "base/trace_hash.h"
#include "simulation/health.h"
#include "simulation/rules.h"

namespace weft::scenarios {

// The work of a call at its server.
enum class Work : std::uint8_t {
    add,        // Counts, at most once.
    read,       // Changes nothing.
    later,      // As add, replies after a while; notified of a cancel.
    nested,     // As add, and the server makes a call of its own.
    large,      // As add, with a body that fits no message.
    failing,    // As add, fails with an error.
    refused,    // Rejected before anything was done.
    elsewhere,  // As later, by work on another context of the server.
};
// The words of large bodies: each names its message.
constexpr std::uint64_t marked_word(std::uint64_t number, std::size_t at) {
    return 0x5eed'0000'0000'0000 | (number & 0xffff'ffff) << 16 | (at / 8 & 0xffff);
}
// The call that a word names; any other word names none.
constexpr std::optional<std::uint64_t> call_in(std::uint64_t word) {
    if (word >> 48 != 0x5eed) return std::nullopt;
    return word >> 16 & 0xffff'ffff;
}
// Whether its body fits no message. Some idempotent calls are large, too.
inline bool is_large(Work work, std::uint64_t number) {
    return work == Work::large || (work == Work::read && number % 64 == 7);
}
inline bool is_notified(Work work) { return work == Work::later || work == Work::elsewhere; }
inline constexpr std::uint32_t works = 8;

struct CallRecord {
    Work work = Work::add;
    std::string client;
    std::uint32_t client_life = 0;
    unsigned leg = 0;                // Its connection: by the client's context, and the server's.
    bool was_connected = false;      // At its submission.
    std::optional<unsigned> pinned;  // The context that it is for.
    std::string server;
    TimePoint submitted{};
    TimePoint deadline = never;
    TimePoint cancelled = never;
    std::optional<std::uint64_t> parent;  // The call of the handler that began it.
    bool is_submitting = true;
    bool client_died = false;
    bool is_complete = false;
    std::uint32_t executions = 0;
    std::uint32_t cancel_notices = 0;
    TimePoint heard = never;     // When its handler was notified of a cancel, before it replied.
    TimePoint answered = never;  // By its handler, first.
    Status answer;               // The first reply; an effect only if it set one.
    TimePoint completed{};
    Status status;

    Waiting waiting() const { return {client, leg, server, submitted, was_connected}; }
};

inline CallRecord record_of(Work work, const std::string& client, const std::string& server) {
    CallRecord record;
    record.work = work;
    record.client = client;
    record.server = server;
    return record;
}

// The state of a call's hosts, and of the links between them, when it ended or was checked.
struct Conditions {
    TimePoint now{};
    TimePoint running_since{};  // Since when the client runs.
    // Since when the client can't reach the server and has received nothing.
    TimePoint unreachable_since = never;
    bool is_whole = false;  // Nothing broke since the call was submitted,
    bool is_calm = false;   // and nothing slowed it down.
};

// Codes that a valid call may end with. Without memory, a call to an unconnected peer fails like
// one that is too large.
constexpr bool is_possible(Code code, const Conditions& conditions) {
    switch (code) {
        case Code::ok:
        case Code::cancelled:
        case Code::deadline_exceeded:
        case Code::resource_exhausted:
        case Code::unavailable:
        case Code::data_loss: return true;
        case Code::invalid_argument: return !conditions.is_whole;
        default: return false;
    }
}

class Ledger {
  public:
    explicit Ledger(RuleResults& results) : results_(results) {}

    std::uint64_t begin(CallRecord record) {
        records_.push_back(std::move(record));
        return records_.size() - 1;
    }
    CallRecord& at(std::uint64_t number) { return records_[number]; }
    std::uint64_t size() const { return records_.size(); }

    // The server starts with so many contexts.
    void on_start(const std::string& server, unsigned contexts, TimePoint now) {
        lives_[server].push_back({contexts, now});
    }
    // A handler starts with that `deadline`, on a context. False: no client requested it.
    bool on_execute(std::uint64_t number, const std::string& server, unsigned context,
                    TimePoint now, TimePoint deadline);
    // Its handler is about to reply.
    void on_reply(std::uint64_t number, const Status& answer, TimePoint now);
    void on_cancel_notice(std::uint64_t number, const Conditions& conditions);
    // Its caller ended the call some time ago; `is_checked`: without a fault since it was
    // submitted.
    void on_caller_gave_up(std::uint64_t number, bool is_checked);
    void on_complete(std::uint64_t number, const Status& status, bool is_own_reply,
                     const Conditions& conditions);
    // Checks a call that is not complete yet.
    void is_open(std::uint64_t number, const Conditions& conditions);
    void on_client_death(std::uint64_t number) { records_[number].client_died = true; }

    std::uint64_t open() const;
    // Checks at the end.
    void close();
    std::uint64_t hash() const { return trace_.value(); }
    std::string describe(std::uint64_t number) const;
    // Memory of one host that another may read: it must hold no bytes of calls between others.
    void on_memory_shown(const std::string& owner, const std::string& reader, ByteView memory);

  private:
    struct Life {
        unsigned contexts;
        TimePoint since;
    };
    bool was_without(const CallRecord& record) const;
    bool was_given_up(const CallRecord& record, TimePoint now) const;
    TimePoint cancelled_at(const CallRecord& record) const;
    void validate_effect(const CallRecord& record, std::uint64_t number);
    void validate_executions(const CallRecord& record, std::uint64_t number);
    void validate_failure(const CallRecord& record, std::uint64_t number,
                          const Conditions& conditions);
    void validate_forgotten(const CallRecord& record, std::uint64_t number);
    void validate_arrival(const CallRecord& record, std::uint64_t number,
                          const Conditions& conditions);

    RuleResults& results_;
    std::vector<CallRecord> records_;
    // Client, its life, and a server that has run a call of it.
    std::set<std::tuple<std::string, std::uint32_t, std::string>> heard_;
    std::map<std::string, std::vector<Life>> lives_;  // Of servers.
    base::TraceHash trace_;
};

}  // namespace weft::scenarios
