// Tells of each later view that a group file has, from a thread of its own.
//
// The directory is watched by inotify, and the file looked at once a second besides: file systems
// of the network tell nothing. Only what closes a file or renames one is listened to: an editor's
// half-written one is met by the look at most.
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
    FileFollower(std::string path, GroupAuthority::Told told, GroupAuthority::Troubled troubled);
    // Waits for a call that is under way. Requires: is_of_this_process().
    ~FileFollower();
    FileFollower(const FileFollower&) = delete;
    FileFollower& operator=(const FileFollower&) = delete;

    // Once. Errors: as GroupAuthority::follow().
    Status start();
    // False: this is a forked child, which has the object and not its thread.
    bool is_of_this_process() const { return process_.is_this(); }

  private:
    // What tells one file under this name from another, or from an earlier state of it.
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
    void look();
    Status judge(const Result<GroupView>& found) const;

    const base::OwnerProcess process_;
    const std::string path_;
    const GroupAuthority::Told told_;
    const GroupAuthority::Troubled troubled_;
    base::UniqueFd stop_;
    base::UniqueFd inotify_;  // None: the look alone finds it.
    std::set<int> watches_;
    std::set<std::string> leaves_;   // Of the file, and of what it leads to when it is a link.
    std::optional<GroupView> view_;  // The last one that was told.
    std::optional<Stamp> seen_;      // None: look again, whatever is there.
    Status trouble_;
    core::JoinedThread joined_;
    std::thread thread_;
};

}  // namespace weft::group
