// The driver of a collective at a rank that received it: replies to its parents in the tree, now
// and when they repeat a request after the end.
#pragma once

#include "coll/collective_driver.h"

namespace weft::coll {

class MemberDriver final : public CollectiveDriver, public CollectiveRecord {
  public:
    class Owner {
      public:
        // A parent may return within parent_return_time.
        virtual void expect_parent(MemberDriver& collective) = 0;
        virtual void on_done(MemberDriver& collective) = 0;

      protected:
        ~Owner() = default;
    };

    MemberDriver(CollectiveHost& host, Owner& owner, Setup setup)
        : CollectiveDriver(host, std::move(setup)), owner_(owner) {}

    // A parent requests the outcomes of the subtree or of this rank only. Requires: it is the same
    // collective.
    void on_request(const ForwardHeader& header, Call call);
    // As CollectiveState::on_parent_cancelled().
    void on_parent_cancelled(std::uint32_t parent);
    // Frees room: stops waiting for missing outcomes. Children with a request may still run the
    // method.
    void evict();
    // Whether the header has the same plan and subtree.
    bool matches(const ForwardHeader& header) const;

    // It has completed, the method was not entered here, and no child was contacted.
    bool did_nothing() const { return did_nothing_; }
    // A parent is expected to return until then.
    void expect_parent_until(TimePoint until) { parent_expected_until_ = until; }
    bool expects_parent(TimePoint now) const { return now < parent_expected_until_; }

    bool in_expected_list = false;  // Of its owner.

  private:
    struct ParentRequest {
        std::uint32_t id = 0;
        bool self_only = false;
        SessionKey from;
        Call call;
    };

    void refresh(const Ready::Refresh&) override { WEFT_ASSERT(false); }  // For origins only.
    void report() override { WEFT_ASSERT(false); }                        // Likewise.
    void reply(const Ready::Reply& reply) override;
    void on_done() override;
    void on_method_done(Status status, ByteView reply) override;
    void reply_self_only();
    void on_parent_gone(std::uint32_t id);
    // The open request of that number, which is removed; nullopt: it has ended.
    std::optional<ParentRequest> take_request(std::uint32_t id);
    SubtreeReply complete_reply() const;

    Owner& owner_;
    std::vector<ParentRequest> parent_requests_;
    std::uint32_t next_request_ = 1;
    TimePoint parent_expected_until_{};
    bool did_nothing_ = false;
};

}  // namespace weft::coll
