// The authority that decides the views of a group, one after the other.
//
// Members and clients accept the views that they receive. A new view, with a higher epoch, is made
// in one place. group_file() is the authority over a group file.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <weft/callback.h>
#include <weft/group_view.h>
#include <weft/result.h>

namespace weft {

// Thread: any but a context's, since reading and writing block.
class GroupAuthority {
  public:
    using Decision = std::function<Result<GroupView>(const GroupView& now)>;
    using ViewCallback = Callback<void(GroupView view)>;
    using ErrorCallback = Callback<void(const Status& why)>;

    virtual ~GroupAuthority() = default;

    // The current view. Errors: of group_file(): as GroupView::load().
    virtual Result<GroupView> view() = 0;

    // Makes the result of `decision` on the current view the current view, and returns it. No other
    // change happens in between, so no change is lost. The next view is of the same group, in a
    // later epoch; returning the view unchanged changes nothing. `decision` runs on this thread,
    // once, and must not call this.
    // Errors: as view(); any error of `decision`; INVALID_ARGUMENT: an empty function, or a
    // decision for no later epoch or another group; of group_file(): PERMISSION_DENIED,
    // RESOURCE_EXHAUSTED (disk), FAILED_PRECONDITION: the file can't be written, or a decision
    // about the same file calls this.
    virtual Result<GroupView> change(const Decision& decision) = 0;

    // From here on until this authority is destroyed, `on_view` receives the current view, then
    // later ones, always including the last; epochs only grow. `on_error` may be empty. It receives
    // the reason why no later view can be read at present, once for each reason, and OK when that
    // has ended.
    //
    // One thread of the authority calls both. All signals but those of a thread's own faults are
    // blocked on it, and the authority's destructor waits for it. The callbacks may call view() and
    // change(); destroying the authority in a callback aborts the program with a message. The
    // callbacks may wait for a runtime, as Group::install() and block_on() do, also while the
    // runtime's thread is in that destructor. The destructor then does the work that the callback
    // waits for. If it runs inside a turn and the callback waits in block_on(), it aborts the
    // program with a message.
    //
    // Errors, without a call of `on_view`: as view(); INVALID_ARGUMENT: `on_view` is empty;
    // FAILED_PRECONDITION: it is followed already; RESOURCE_EXHAUSTED: no descriptor, no thread. A
    // forked child has no follower, and may follow with its copy of this.
    virtual Status follow(ViewCallback on_view, ErrorCallback on_error) = 0;
};

// An authority over a group file. Any process that may write the file changes it as one step: a
// reader finds a whole view. A link is followed; it stays, and the file that it leads to is
// replaced.
//
// A change holds a lock on a second file that stays beside the first (FILE.lock, flock(2)), writes
// `.FILE.weft-tmp` in the same directory, makes it durable and renames it. The mode is kept, and
// the owner where this process may set it. The directory must be writable. A user that edits the
// file by hand should do the same, or be the only writer. Followers notice a change at once on a
// local file system, within a second on a network file system. A file that does not parse, or has
// an earlier epoch than before, is an error until it is repaired. A relative path is resolved at
// this call, from the working directory.
std::unique_ptr<GroupAuthority> group_file(std::string path);

}  // namespace weft
