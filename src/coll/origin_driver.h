// The driver of a collective at the rank that began it: reports the outcome to the caller.
#pragma once

#include "coll/collective_driver.h"
#include "coll/collective_request.h"

namespace weft::coll {

class OriginDriver final : public CollectiveDriver {
  public:
    class Owner {
      public:
        // Fetches the later view of the member at a position, and restarts; or calls
        // use_own_view().
        virtual void refresh(std::shared_ptr<OriginDriver> collective, std::uint32_t position) = 0;
        virtual void on_done(OriginDriver& collective) = 0;

      protected:
        ~Owner() = default;
    };

    // `nonmembers`: included ranks that are not members.
    OriginDriver(CollectiveHost& host, Owner& owner, Setup setup, CollectiveRequest request,
                 std::vector<std::uint32_t> nonmembers);

    // The scope cancels the collective, and the completion runs in that scope.
    void cancel_with(core::CallScope& scope);
    // A later view was not learnt: sends the refused requests again.
    void use_own_view() { advance(&CollectiveState::use_own_view, now()); }
    // Takes the place of `before`, which no rank has begun.
    void supersede(OriginDriver& before);
    // The request again, with all bodies and without its completion.
    CollectiveRequest request_again() const;

    CollectiveId id() const { return request_.id; }
    // Reported by its policy, and still being delivered to other ranks that shall have it.
    bool is_delivering() const { return request_.delivers_rest && state().is_delivering(); }
    // The position of a rank with a later view, if one replied, and that view's epoch; else 0.
    std::uint32_t later_at() const { return later_at_; }
    std::uint64_t later_epoch() const { return later_epoch_; }

  private:
    struct ScopeHook : core::ScopedOperation {
        OriginDriver* of = nullptr;
    };

    void refresh(const Ready::Refresh& refresh) override;
    void report() override;
    void reply(const Ready::Reply&) override { WEFT_ASSERT(false); }  // An origin has no parent.
    void on_done() override;
    void on_later_view(std::uint32_t position, std::uint64_t epoch) override;
    GroupOutcome outcome() const;
    void complete(GroupOutcome outcome);

    Owner& owner_;
    CollectiveRequest request_;  // `bodies`: of ranks that may be members of a later view.
    const std::vector<std::uint32_t> nonmembers_;
    ScopeHook scope_hook_;
    std::uint32_t later_at_ = 0;
    std::uint64_t later_epoch_ = 0;
};

// Included ranks that are not members fail with NOT_FOUND.
Status no_such_member();
void add_nonmembers(const std::vector<std::uint32_t>& nonmembers, GroupOutcome& to);

}  // namespace weft::coll
