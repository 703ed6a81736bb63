// One rank's part in one collective, as a pure state machine: whom it asks, whom it answers, and
// when it stops waiting. Time, messages and the method that runs come through a Port.
//
// It forwards first and then runs. Whoever is asked answers within the patience that he is told,
// with what he knows by then, and is asked for the rest, but not before half of that is over; so
// one who says nothing is told from one whose handler takes long. Those below one that failed, or
// is silent, are asked by whoever asked him: they may have been asked before, know the collective,
// and join the new question to it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <weft/group_options.h>
#include <weft/time.h>

#include "coll/asks.h"
#include "coll/known.h"
#include "coll/outcomes.h"
#include "coll/roster.h"
#include "coll/tree.h"
#include "coll/wire.h"

namespace weft::coll {

// What all ranks of a collective agree on; one for all that differ in their identity only.
struct Plan {
    std::shared_ptr<const Roster> roster;
    std::uint64_t view = 0;  // Digest of it, where it began.
    std::uint64_t group = 0;
    std::string name;  // Of the group.
    std::uint64_t epoch = 0;
    std::uint64_t method = 0;
    Tree tree;
    Merge merge;
    std::uint8_t flags = 0;  // Of ForwardHeader.
};

class Part {
  public:
    using Ask = coll::Ask;

    // A rank's surroundings. Each function may be called from within those of the part, and may
    // call answered(), failed() and ran() at once.
    class Port {
      public:
        // Sends it; one of answered(), failed() follows once, unless it is given up.
        virtual void ask(Part& part, const Ask& ask) = 0;
        // Of a question under way; all others are given up, too, and none follows. `stop`: the rank
        // that was asked is told, too, also one that has said so far and waits to be asked for the
        // rest.
        virtual void give_up(Part& part, const Ask& ask, bool stop) = 0;
        // Runs the method here; ran() follows, unless it is stopped.
        virtual void run(Part& part) = 0;
        virtual void stop_running(Part& part) = 0;
        // To one that asked: what outcomes() say, all of it or so far; he is forgotten then.
        virtual void reply_to(Part& part, std::uint32_t asker, Answer::Kind kind) = 0;
        // Where it began outside of the group: nobody has begun, for this rank has a later view. It
        // begins anew as another part, or use_own_view() follows.
        virtual void refresh(Part& part, std::uint32_t position, std::uint64_t epoch) = 0;
        // At the origin: it can be told, though some may still be missing. Once.
        virtual void tell(Part& part) = 0;
        // There is nothing left to do. Once; nothing follows.
        virtual void done(Part& part) = 0;

      protected:
        ~Port() = default;
    };

    struct Role {
        Interval mine;           // Positions that it is responsible for.
        bool is_origin = false;  // It began here.
        bool runs = true;        // mine.first is this rank; else an outside client.
        Policy policy = Policy::all;
        bool abandons = false;  // What is missing when it is told is cancelled.
        std::uint32_t quorum = 0;
        TimePoint until = never;
    };

    // How long one may take to say that he is there, and what the way may take on top.
    // Those above have more of it, so that what is said below is in what they say.
    static constexpr Duration least_patience = 120ms;
    static constexpr Duration level_patience = 10ms;
    static constexpr Duration last_patience = 2s;
    static constexpr Duration silence = 500ms;
    // So many are asked alone at once, without those that say nothing or that it takes longer.
    static constexpr std::uint32_t alone_most = 64;
    // Askers that were told so far, and are expected again: one more replaces the first.
    static constexpr std::ptrdiff_t expected_most = 64;
    // A rank whose parent died is asked by somebody else within this: a silence is found in three
    // seconds at most, and so is each further one of those above that died together.
    static constexpr Duration orphan_lasts = 15s;

    Part(Port& port, std::shared_ptr<const Plan> plan, Identity identity, const Role& role);
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    void begin(TimePoint now);
    // Somebody asks, by a question of that number; `answer_by`: when he wants to hear something.
    void asked(std::uint32_t question, std::uint32_t asker, TimePoint answer_by);
    // Whoever asked it does not wait any more.
    void asker_left(std::uint32_t question, TimePoint now);
    // He will not come again, nor will anybody in his place. All who ask are above: those who are
    // below him have asked for his sake, and those above him for their own.
    void desert(std::uint32_t asker);

    void answered(std::uint32_t ask, Answer answer, TimePoint now);
    void failed(std::uint32_t ask, Status why, TimePoint now);
    // As failed(), but that none of those that it is about is asked: one outcome for all of them.
    void refuse(std::uint32_t ask, Status why, TimePoint now);
    void ran(Status status, ByteView reply);
    // After refresh(): there was nothing to be learnt; or another part takes its place.
    void use_own_view(TimePoint now);
    void be_replaced();
    // Its time is over, or due() is.
    void on_time(TimePoint now);
    // It is not waited for any more. `why` is the outcome of what is missing. Ranks that were asked
    // are told to stop, too, or may do it still.
    void stop(const Status& why, bool stops_others = true);

    // What whoever gets this question may take to say something.
    static Duration patience_of(const Ask& ask);
    // When on_time() wants to be called. Cost: no walk over the questions that are under way.
    TimePoint due() const;
    bool is_over() const { return over_; }
    // Told by its policy, and delivered to the others still.
    bool is_delivering() const { return told_ && !over_; }
    // What is missing will be told, by itself or by one that is asked: between calls always so.
    bool awaits_all() const;
    // All that is missing is of ranks that say nothing.
    bool waits_for_silent() const;
    // Nothing ran, and nobody was asked: it may be forgotten.
    bool did_nothing() const;
    // When it was over, an asker that had been told so far was expected again, and none waited.
    bool was_awaited() const { return was_awaited_; }
    // Neither outcomes nor members are needed any more. Requires: it is over.
    void release();
    // Each position's, in order of position; what is missing has this status.
    std::vector<Outcome> take_all(const Status& missing) const;

    const Plan& plan() const { return *plan_; }
    const std::shared_ptr<const Plan>& shared_plan() const { return plan_; }
    Identity identity() const { return identity_; }
    // What this one is where it asks (ForwardHeader::asker).
    std::uint32_t as_asker() const { return role_.runs ? role_.mine.first + 1 : 0; }
    const Role& role() const { return role_; }
    const Outcomes& outcomes() const { return outcomes_; }
    std::size_t asks() const { return asks_.size(); }
    std::uint64_t asks_walked() const { return asks_.walked(); }
    std::size_t askers() const;  // With an open question.
    // With those who are expected to ask again.
    std::size_t interested() const { return askers_.size(); }
    // All that it holds by itself, but for the texts of failures.
    std::size_t state_bytes() const {
        return sizeof *this + outcomes_.heap_bytes() + asks_.heap_bytes() +
               askers_.capacity() * sizeof(Asker);
    }

  private:
    static constexpr std::uint32_t nobody = UINT32_MAX;
    struct Asker {
        std::uint32_t question = 0;  // 0: none is open, and one is expected, of him or another.
        std::uint32_t asker = 0;     // `nobody`: he has deserted, and his question goes soon.
        TimePoint until = never;     // When it is answered, or expected no more.
    };

    void ask_below(Interval below, bool again, TimePoint now);
    void ask(Interval of, Asking asking, bool again, bool named, TimePoint now);
    void send(Ask& ask, TimePoint now);
    void ask_on(std::uint32_t id, TimePoint now);
    void ask_paused(TimePoint now);
    std::optional<Ask> take_failed(std::uint32_t id, Status& why, TimePoint now);
    void adopt(const Ask& ask, Status why, TimePoint now);
    void refused(std::uint32_t id, std::uint64_t epoch, TimePoint now);
    void ask_missing(const Ask& ask, TimePoint now);
    void ask_waiting(TimePoint now);
    void give_up_all(bool stop);
    void fall_silent(TimePoint now);
    void answer_impatient(TimePoint now);
    TimePoint orphaned_at() const;
    std::uint32_t asked_until(std::uint32_t position) const;
    void unpark(TimePoint now);
    void leave();
    bool is_decided() const;
    void end();

    // Around whatever may end it, or make room for those who wait to be asked.
    class Step {
      public:
        // Without a time nobody is asked.
        explicit Step(Part& part, std::optional<TimePoint> now = {}) : part_(part), now_(now) {
            ++part_.depth_;
        }
        Step(const Step&) = delete;
        Step& operator=(const Step&) = delete;
        ~Step() {
            if (part_.depth_ == 1 && now_) part_.ask_waiting(*now_);
            if (--part_.depth_ == 0) part_.leave();
        }

      private:
        Part& part_;
        std::optional<TimePoint> now_;
    };

    Port& port_;
    std::shared_ptr<const Plan> plan_;
    const Identity identity_;
    const Role role_;
    Outcomes outcomes_;
    Asks asks_;
    std::vector<Asker> askers_;
    bool runs_ = false;     // The method, now.
    bool stopped_ = false;  // What fails is not adopted any more.
    bool told_ = false;
    bool over_ = false;
    bool was_awaited_ = false;
    bool may_refresh_ = false;  // Nobody has begun, as far as is known.
    std::uint8_t depth_ = 0;    // Of its functions that run: the first one's end makes progress.
};

}  // namespace weft::coll
