#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <system_error>
#include <utility>

#include <weft/group_authority.h>

#include "base/assert.h"
#include "group/file_follower.h"
#include "group/replace_file.h"

namespace weft {

namespace {

Status validate_decision(const GroupView& before, const GroupView& after) {
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
    ~FileAuthority() override { forget_parents(); }

    Result<GroupView> view() override { return GroupView::load(path_); }
    Result<GroupView> change(const Decision& decision) override;
    Status follow(ViewCallback on_view, ErrorCallback on_error) override;

  private:
    void forget_parents();
    static Result<GroupView> decide(const Decision& decision, const GroupView& now,
                                    const std::string& about);

    const std::string path_;
    // The process that follows the file; a forked child may follow besides its parent. An atomic
    // instead of a mutex, because the child may inherit a locked one.
    std::atomic<pid_t> follower_process_{0};
    std::unique_ptr<group::FileFollower> follower_;
};

// In a forked child the follower's thread belongs to the parent: the object is leaked.
void FileAuthority::forget_parents() {
    if (follower_ && !follower_->is_of_this_process()) (void)follower_.release();
}

// The file of the decision that runs on this thread and holds the file's lock.
static constinit thread_local const std::string* decided_here = nullptr;

Result<GroupView> FileAuthority::decide(const Decision& decision, const GroupView& now,
                                        const std::string& about) {
    struct Deciding {
        const std::string* outer;
        ~Deciding() { decided_here = outer; }
    } const scope{std::exchange(decided_here, &about)};
    WEFT_ASSERT(scope.outer != &about);
    return decision(now);
}

Result<GroupView> FileAuthority::change(const Decision& decision) {
    if (!decision) {
        return fail(Code::invalid_argument,
                    "GroupAuthority::change() with an empty function; pass a decision");
    }
    const Result<std::string> target = group::resolve_link(path_);
    if (!target) return target.status();
    if (decided_here && *decided_here == *target) {
        return fail(Code::failed_precondition,
                    "GroupAuthority::change() inside a decision about the same file, '" + path_ +
                        "', would deadlock; return the resulting view from the outer decision");
    }
    const Result<group::FileLock> lock = group::lock_file(*target);
    if (!lock) return lock.status();
    const Result<GroupView> before = GroupView::load(*target);
    if (!before) return before.status();
    Result<GroupView> after = decide(decision, *before, *target);
    if (!after || after->digest() == before->digest()) return after;
    if (Status status = validate_decision(*before, *after); !status.ok()) return status;
    Status written = group::replace_file(*target, after->to_json());
    if (!written.ok()) return written;
    return after;
}

Status FileAuthority::follow(ViewCallback on_view, ErrorCallback on_error) {
    if (!on_view) {
        return fail(
            Code::invalid_argument,
            "GroupAuthority::follow() with an empty function; pass a callback for the views");
    }
    if (follower_process_.exchange(::getpid()) == ::getpid()) {
        return fail(Code::failed_precondition,
                    "the group file '" + path_ + "' is followed already");
    }
    forget_parents();
    WEFT_ASSERT(!follower_);
    // Set before its thread starts, because a callback there may destroy this.
    follower_ =
        std::make_unique<group::FileFollower>(path_, std::move(on_view), std::move(on_error));
    Status status = follower_->start();
    if (!status.ok()) {
        follower_.reset();
        follower_process_ = 0;
    }
    return status;
}

}  // namespace

std::unique_ptr<GroupAuthority> group_file(std::string path) {
    // An absolute path, because the program may change its directory, where another group's file
    // may have this name.
    std::error_code failed;
    const std::filesystem::path whole = std::filesystem::absolute(path, failed);
    return std::make_unique<FileAuthority>(failed ? std::move(path) : whole.string());
}

}  // namespace weft
