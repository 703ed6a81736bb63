// Reports each later view of a group file, from a thread of its own.
//
// The directory is watched by inotify, and the file is also checked once a second, because network
// file systems send no events. Only closes after writing and renames count as events, so that an
// editor's incomplete file is met at most by the periodic check.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include <weft/group_authority.h>

#include "base/unique_fd.h"
#include "core/joined_thread.h"

namespace weft::group {

class FileFollower {
  public:
    FileFollower(std::string path, GroupAuthority::ViewCallback on_view,
                 GroupAuthority::ErrorCallback on_error);
    // Waits for a running callback. Requires: is_of_this_process().
    ~FileFollower();
    FileFollower(const FileFollower&) = delete;
    FileFollower& operator=(const FileFollower&) = delete;

    // Once. Errors: as GroupAuthority::follow().
    Status start();
    // False: this is a forked child, which has the object and not its thread.
    bool is_of_this_process() const { return process_.is_this(); }

  private:
    // Distinguishes the file under this name from another one and from an earlier state.
    struct Stamp {
        dev_t device = 0;
        ino_t number = 0;
        off_t bytes = 0;
        std::int64_t written_ns = 0;
        std::int64_t changed_ns = 0;
        friend bool operator==(const Stamp&, const Stamp&) = default;
    };
    static Stamp stamp_of(const std::string& path);

    void loop();
    void watch();
    bool was_touched();
    void check_file();
    Status validate(const Result<GroupView>& found) const;

    // ---- constant
    const base::OwnerProcess process_;
    const std::string path_;
    const GroupAuthority::ViewCallback on_view_;
    const GroupAuthority::ErrorCallback on_error_;

    // ---- from start() on
    base::UniqueFd stop_;
    base::UniqueFd inotify_;  // None: only the periodic check finds changes.

    // ---- the follower's thread
    std::set<int> watches_;
    std::set<std::string> watched_names_;  // Of the file, and of its target when it is a link.
    std::optional<GroupView> view_;        // The last reported view.
    std::optional<Stamp> last_stamp_;      // None: the next check reads the file.
    Status error_;

    // ---- the thread itself
    core::JoinedThread joined_;
    std::thread thread_;
};

}  // namespace weft::group
