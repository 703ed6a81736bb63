#include <mutex>

#include <weft/group_authority.h>

#include "base/fork.h"
#include "group/file_follower.h"
#include "group/replace_file.h"

namespace weft {

namespace {

Status judge_decision(const GroupView& before, const GroupView& after) {
    if (after.name() != before.name()) {
        return fail(Code::invalid_argument, "a view of group '" + after.name() +
                                                "' can't follow on one of '" + before.name() + "'");
    }
    if (after.epoch() > before.epoch()) return {};
    return fail(Code::invalid_argument, "a view of epoch " + std::to_string(after.epoch()) +
                                            " can't follow on one of epoch " +
                                            std::to_string(before.epoch()));
}

class FileAuthority final : public GroupAuthority {
  public:
    explicit FileAuthority(std::string path) : path_(std::move(path)) {}
    ~FileAuthority() override {
        if (!owner_.is_this()) (void)follower_.release();  // Its thread is the parent's.
    }

    Result<GroupView> view() override { return GroupView::load(path_); }
    Result<GroupView> change(const Decision& decision) override;
    Status follow(Told told, Troubled troubled) override;

  private:
    const base::OwnerProcess owner_;
    const std::string path_;
    std::mutex mutex_;
    std::unique_ptr<group::FileFollower> follower_;
};

Result<GroupView> FileAuthority::change(const Decision& decision) {
    const Result<std::string> target = group::resolve_link(path_);
    if (!target) return target.status();
    const Result<base::UniqueFd> lock = group::lock_file(*target);
    if (!lock) return lock.status();
    const Result<GroupView> before = GroupView::load(*target);
    if (!before) return before.status();
    Result<GroupView> after = decision(*before);
    if (!after || after->digest() == before->digest()) return after;
    if (Status status = judge_decision(*before, *after); !status.ok()) return status;
    Status written = group::replace_file(*target, after->to_json());
    if (!written.ok()) return written;
    return after;
}

Status FileAuthority::follow(Told told, Troubled troubled) {
    const std::lock_guard lock(mutex_);
    if (follower_) {
        return fail(Code::failed_precondition,
                    "the group file '" + path_ + "' is followed already");
    }
    auto follower =
        std::make_unique<group::FileFollower>(path_, std::move(told), std::move(troubled));
    Status status = follower->start();
    if (status.ok()) follower_ = std::move(follower);
    return status;
}

}  // namespace

std::unique_ptr<GroupAuthority> group_file(std::string path) {
    return std::make_unique<FileAuthority>(std::move(path));
}

}  // namespace weft
