// Who decides on a group: what its next view is, one after the other.
//
// Members and clients take what they are told; a new view, with a higher epoch, is made in one
// place. group_file() is the one over a group file.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <weft/callback.h>
#include <weft/group_view.h>
#include <weft/result.h>

namespace weft {

// Thread: any, for all of it; what reads and writes blocks, so not on a context's.
class GroupAuthority {
  public:
    using Decision = std::function<Result<GroupView>(const GroupView& now)>;
    using Told = Callback<void(GroupView view)>;
    using Troubled = Callback<void(const Status& why)>;

    virtual ~GroupAuthority() = default;

    // The view that holds. Errors: of group_file(): as GroupView::load().
    virtual Result<GroupView> view() = 0;

    // What `decision` makes of the view that holds, holds from then on, and is returned: nobody
    // else changes it in between, so no change is lost. The next view is of the same group, in a
    // later epoch; to return the view as it was changes nothing. `decision` runs on this thread,
    // once, and may not call this. Errors: as view(); what `decision` returns; INVALID_ARGUMENT: an
    // empty function, a decision for no later epoch, or another group; of group_file():
    // PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk), FAILED_PRECONDITION: it can't be written, or
    // this is called by a decision about the same file.
    virtual Result<GroupView> change(const Decision& decision) = 0;

    // From here on until this authority is destroyed, `told` hears of the view that holds: at first
    // of the present one, then of later ones, the last of them always; epochs only grow. `troubled`
    // may be empty; it hears why no later view can be had at present, once for each reason, and of
    // OK when that is over. Both are called by one thread of its own, which takes only the signals
    // of its own faults and which the destructor waits for: they may call view() and change(); to
    // destroy this there aborts the program and says so. They may wait for a runtime, as
    // Group::install() and block_on() do, also while its thread is in the destructor, which then
    // does in the callback's place what that waits for; only from inside a turn it can't end a
    // block_on(), and aborts the program and says so. Errors, `told` is not called then: as
    // view(); INVALID_ARGUMENT: `told` is empty; FAILED_PRECONDITION: it is followed already;
    // RESOURCE_EXHAUSTED: no descriptor, no thread. A forked child has no follower, and may follow
    // with its copy of this.
    virtual Status follow(Told told, Troubled troubled) = 0;
};

// Over a group file, which anybody who may write it changes as one step: whoever reads it finds a
// whole view. A link is followed; it stays, and the file that it leads to is replaced.
//
// Who changes the file holds a lock on another that stands beside it for good (FILE.lock,
// flock(2)), writes `.FILE.weft-tmp` in the same directory, makes it durable and renames it; owner
// and mode stay as they were. So the directory has to be writable. Who edits the file by hand
// should do as much, or be alone. Followers notice at once on a file system of this machine, within
// a second on one of the network; what does not parse, or goes back to an earlier epoch, is trouble
// until it is mended. A relative path is one of the directory that the program is in at this call.
std::unique_ptr<GroupAuthority> group_file(std::string path);

}  // namespace weft
