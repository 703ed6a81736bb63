// One collective at one rank: its part, played over calls of weft.Collective/Forward. Alive while a
// call, the local handler, its engine or the table of those that are known refers to it.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <weft/call.h>

#include "base/slot_table.h"
#include "base/timer_wheel.h"
#include "coll/group_impl.h"
#include "coll/part.h"
#include "coll/share.h"
#include "core/context.h"

namespace weft::coll {

class Operation final : public std::enable_shared_from_this<Operation>, private Part::Port {
  public:
    // Where it began.
    struct MadeIn : core::InScope {
        Operation* of = nullptr;
    };
    struct Origin {
        CollectiveId id = 0;
        GroupCallOptions options;
        std::optional<RankSet> include;  // What the options pointed to.
        RankSet exclude;
        std::vector<std::uint32_t> strangers;  // Named to take part, and no members.
        // Bodies for those, who may be members of a later view.
        std::vector<std::pair<std::uint32_t, std::vector<std::byte>>> spare_bodies;
        bool is_owed = true;  // As of Engine::Beginning.
        MadeIn made_in;       // Where its completion runs, and what it ends with.
        GroupCompletion done;
        std::uint32_t later_at = 0;     // The position of one that has a later view,
        std::uint64_t later_epoch = 0;  // which is this; 0: none has.
    };

    Operation(Engine& engine, std::shared_ptr<GroupImpl> group, std::shared_ptr<const Plan> plan,
              Identity identity, std::uint16_t unsettled, const Part::Role& role);
    ~Operation();

    void begin();
    // Somebody asks, of all or of this rank only. Requires: it is the same collective.
    void ask(const ForwardHeader& header, Call call);
    // As Part::desert().
    void desert(std::uint32_t asker);
    // The outcome of what is missing is `why`, and whoever was asked is told.
    void stop(const Status& why);
    // As Part::use_own_view(), be_replaced().
    void use_own_view();
    void be_replaced();
    // For want of room: what is missing is not waited for here any more. Ranks that were asked may
    // still do it.
    void give_up_waiting();
    // One of the questions that were put off is asked, or concluded. False: none is left.
    bool go_on();
    // No timer of it is left.
    void forget();
    // Whether this asks for the same.
    bool is_for(const ForwardHeader& header) const;

    const Part& part() const { return part_; }
    // It is over, the method was not entered here, and nobody was asked.
    bool did_nothing() const { return did_nothing_; }

    const std::shared_ptr<GroupImpl> group;
    std::unique_ptr<Origin> origin;    // nullptr: it began elsewhere.
    std::uint8_t priority = 0;         // Of its messages, here and below.
    Client brought_by;                 // That brought it.
    TimePoint began{};                 // By this rank's clock, or earlier: wherever that was.
    Duration lasts = Duration::max();  // From then on.
    TimePoint known_since{};           // As it is known here.
    TimePoint owed_until{};            // A parent that was told so far is about to ask until then.
    bool is_listed = false;            // Among those that are owed.
    bool running = true;               // For the table of those that are known, as what is below.
    bool waits = false;                // The method has run here: it waits for other ranks.
    std::shared_ptr<Shares::Room> room;  // At a member.
    // What each rank's method gets: in `own_body`; or, where nobody is below, in the request while
    // that is handled. By position where it is scattered.
    ByteView body;
    std::vector<std::byte> own_body;

    std::vector<std::byte> answer;      // Once all outcomes are there: for peers that ask again.
    std::vector<std::byte> own_answer;  // The same, of this rank only.
    TimePoint keep_until = never;       // Peers may ask again until then.

  private:
    struct Timer : base::Timer {
        Operation* of = nullptr;
    };
    struct Question {
        Part::Ask ask;
        bool is_leaf = false;      // No rank is below it, and it was asked in begin().
        bool asks_clock = false;   // First, before it can be told when this one began.
        std::uint8_t refused = 0;  // How often it was too old there.
        Shares::Place place;       // Of a member of no group here.
        Channel channel;
        OperationId call;
    };
    // A question for a later turn: to be asked, or one that failed at once.
    struct Later {
        Part::Ask ask;
        Status why;          // OK: to be asked.
        bool whole = false;  // Its failure is that of all of them.
    };
    struct Asker {
        std::uint32_t id = 0;
        bool alone = false;
        AskerId from;
        Call call;
    };

    void ask(Part& part, const Part::Ask& ask) override;
    void give_up(Part& part, const Part::Ask& ask, bool stop) override;
    void run(Part& part) override;
    void stop_running(Part& part) override;
    void reply_to(Part& part, std::uint32_t asker, Answer::Kind kind) override;
    void refresh(Part& part, std::uint32_t position, std::uint64_t epoch) override;
    void tell(Part& part) override;
    void done(Part& part) override;

    ForwardHeader header_for(Interval of, Asking asking, Duration patience) const;
    void ask_now(const Part::Ask& ask);
    void put_off(Later later);
    std::size_t bytes_of(const Part::Ask& ask) const;
    Status no_memory() const;
    // What it can't be sent for want of memory fails in a later turn, and was not sent.
    void send(Question question, const PeerClock& clock);
    void send_or_throw(Question& question, const PeerClock& clock);
    std::vector<std::byte> members_of(Interval of) const;
    CallOptions options_for_calls() const;
    void on_answer(std::uint32_t ask, const Status& status, ByteView reply);
    void on_late(Question question, Ticks reading);
    void tell_alone();
    void lose(std::uint32_t asker);
    void tell_to_stop(const Channel& channel) const;
    Answer all_told() const;
    void on_time();
    void has_run();
    void wait();

    Engine& engine_;
    core::Context& context_;
    Part part_;
    const std::uint16_t unsettled_;
    Timer timer_;                                            // For the part's due(), or earlier.
    std::unordered_map<std::uint32_t, Question> questions_;  // By the number of what it asks.
    std::vector<Later> later_;  // The last one is the next: so there are few of them.
    Measured measured_;
    std::vector<Asker> askers_;
    std::uint32_t next_asker_ = 1;
    base::SlotId running_here_;
    bool is_mine_over_ = false;
    bool has_run_ = false;  // The method has been entered here.
    bool did_nothing_ = false;
    bool is_stopped_ = false;  // The method is not to run any more.
    bool begins_ = false;      // Within begin().
    bool is_in_line_ = false;  // Of those that go on later.
};

}  // namespace weft::coll
