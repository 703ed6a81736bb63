// What really happened to each call of a simulation, kept outside of it, and judged.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <weft/bytes.h>
#include <weft/status.h>
#include <weft/time.h>

#include "base/trace_hash.h"
#include "sim/rules.h"

namespace weft::tool {

// What a call asks of its server.
enum class Work : std::uint8_t {
    add,      // Counts, at most once.
    read,     // Changes nothing.
    later,    // As add, answered after a while; hears of a cancel.
    nested,   // As add, and the server makes a call of its own.
    large,    // As add, with a body that fits no message.
    failing,  // As add, answered with an error.
    refused,  // Rejected before anything was done.
};
// What large bodies consist of, so that each word names its message.
constexpr std::uint64_t marked_word(std::uint64_t number, std::size_t at) {
    return 0x5eed'0000'0000'0000 | (number & 0xffff'ffff) << 16 | (at / 8 & 0xffff);
}
// Of which call; any other word is none's.
constexpr std::optional<std::uint64_t> call_in(std::uint64_t word) {
    if (word >> 48 != 0x5eed) return std::nullopt;
    return word >> 16 & 0xffff'ffff;
}
// Its body fits no message. Some that may run again are large, too.
inline bool is_large(Work work, std::uint64_t number) {
    return work == Work::large || (work == Work::read && number % 64 == 7);
}
inline constexpr std::uint32_t works = 7;

struct Deed {
    Work work = Work::add;
    std::string client;
    std::uint32_t client_life = 0;
    std::string server;
    TimePoint submitted{};
    TimePoint deadline = never;
    TimePoint cancelled = never;
    std::optional<std::uint64_t> parent;  // In whose handler it was begun.
    bool is_submitting = true;
    bool client_died = false;
    bool is_complete = false;
    std::uint32_t executions = 0;
    std::uint32_t cancel_notices = 0;
    TimePoint heard = never;     // Its handler, that it was cancelled, before it answered.
    TimePoint answered = never;  // By its handler, the first time.
    Status answer;               // What that told; an effect only where it set one.
    TimePoint completed{};
    Status status;
};

// What was known of a call's hosts, and of what lies between them, when it ended or was looked at.
struct Scene {
    TimePoint now{};
    TimePoint awake_since{};  // When the client stood still last.
    // Since when it can't talk to the server, and has heard nothing.
    TimePoint apart_since = never;
    bool is_whole = false;  // Nothing broke since the call was submitted,
    bool is_calm = false;   // and nothing slowed it down.
};

// What a call that asks for nothing wrong may end with. For want of memory a call to who is not
// connected is taken for one that is too large.
constexpr bool is_possible(Code code, const Scene& scene) {
    switch (code) {
        case Code::ok:
        case Code::cancelled:
        case Code::deadline_exceeded:
        case Code::resource_exhausted:
        case Code::unavailable:
        case Code::data_loss: return true;
        case Code::invalid_argument: return !scene.is_whole;
        default: return false;
    }
}

class Ledger {
  public:
    explicit Ledger(Verdict& verdict) : verdict_(verdict) {}

    std::uint64_t begin(Deed deed) {
        deeds_.push_back(std::move(deed));
        return deeds_.size() - 1;
    }
    Deed& at(std::uint64_t number) { return deeds_[number]; }
    std::uint64_t size() const { return deeds_.size(); }

    // A handler starts; `deadline` is what it was told. False: nobody asked for it.
    bool executes(std::uint64_t number, const std::string& server, TimePoint now,
                  TimePoint deadline);
    // Its handler is about to answer.
    void answers(std::uint64_t number, const Status& answer, TimePoint now);
    void hears_of_cancel(std::uint64_t number, const Scene& scene);
    // Some time ago its caller gave up; `is_judged`: and nothing was wrong since it was submitted.
    void has_given_up(std::uint64_t number, bool is_judged);
    void completes(std::uint64_t number, const Status& status, bool is_own_reply,
                   const Scene& scene);
    // And is not complete yet.
    void is_open(std::uint64_t number, const Scene& scene);
    void dies(std::uint64_t number) { deeds_[number].client_died = true; }

    std::uint64_t open() const;
    // Of what has to fit at the end.
    void close();
    std::uint64_t hash() const { return trace_.value(); }
    std::string describe(std::uint64_t number) const;
    // The memory of one host that another may read: what was said between others is not there.
    void is_shown(const std::string& owner, const std::string& reader, ByteView memory);

  private:
    bool is_given_up(const Deed& deed, TimePoint now) const;
    TimePoint cancelled_at(const Deed& deed) const;
    void judge_effect(const Deed& deed, std::uint64_t number);
    void judge_executions(const Deed& deed, std::uint64_t number);
    void judge_failure(const Deed& deed, std::uint64_t number, const Scene& scene);
    void judge_forgotten(const Deed& deed, std::uint64_t number);
    void judge_arrival(const Deed& deed, std::uint64_t number, const Scene& scene);

    Verdict& verdict_;
    std::vector<Deed> deeds_;
    // Client, its life, and a server that has run a call of it.
    std::set<std::tuple<std::string, std::uint32_t, std::string>> heard_;
    base::TraceHash trace_;
};

}  // namespace weft::tool
