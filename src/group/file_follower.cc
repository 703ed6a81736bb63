#include "group/file_follower.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstdint>
#include <system_error>

#include "base/assert.h"
#include "base/exiting.h"
#include "base/internal_thread.h"
#include "base/own_descriptor.h"
#include "group/file_error.h"
#include "group/replace_file.h"

namespace weft::group {

static constexpr int poll_interval_ms = 1000;

FileFollower::FileFollower(std::string path, GroupAuthority::ViewCallback on_view,
                           GroupAuthority::ErrorCallback on_error)
    : path_(std::move(path)), on_view_(std::move(on_view)), on_error_(std::move(on_error)) {}

// The follower that owns this thread.
static constinit thread_local const FileFollower* follows_here = nullptr;

FileFollower::~FileFollower() {
    if (follows_here == this) {
        if (base::is_exiting()) {  // The thread ends with the process.
            if (thread_.joinable()) thread_.detach();
            return;
        }
        base::abort_misused(
            "GroupAuthority::~GroupAuthority()",
            "called inside a callback of its follow(), which it would wait for; let "
            "another thread destroy it");
    }
    if (!thread_.joinable()) return;
    const std::uint64_t one = 1;
    (void)base::check_open(::write(stop_.get(), &one, sizeof one));
    joined_.help_until_end();
    thread_.join();
}

Status FileFollower::start() {
    stop_ = base::UniqueFd::close_on_fork([&] { return ::eventfd(0, EFD_CLOEXEC); });
    if (!stop_) return file_error("can't follow the group file '" + path_ + "'");
    inotify_ =
        base::UniqueFd::close_on_fork([&] { return ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK); });
    watch();
    last_stamp_ = stamp_of(path_);
    Result<GroupView> view = GroupView::load(path_);
    if (!view) return std::move(view).status();
    WEFT_ASSERT(!view_ && !thread_.joinable());
    view_ = *std::move(view);
    try {
        thread_ = base::start_internal_thread([this] { loop(); });
    } catch (const std::system_error& error) {
        return fail(Code::resource_exhausted, "can't follow the group file '" + path_ +
                                                  "': no thread (" + base::thread_limits_text() +
                                                  "): " + error.what());
    }
    pthread_setname_np(thread_.native_handle(), "weft-group");
    return {};
}

void FileFollower::loop() {
    base::watch_exit();
    const core::JoinedThread::Running running(joined_);
    WEFT_ASSERT(view_ && !follows_here);
    follows_here = this;
    on_view_(*view_);
    while (true) {
        pollfd wakes[] = {{stop_.get(), POLLIN, 0}, {inotify_.get(), POLLIN, 0}};
        if (::poll(wakes, 2, poll_interval_ms) > 0) base::check_polled(wakes);
        if (wakes[0].revents != 0) return;
        // Two writes within a tick of the file system's clock may have one stamp.
        if (was_touched()) last_stamp_.reset();
        watch();
        check_file();
    }
}

// Renews the watches: the directory may have been replaced, or a link changed. A directory that is
// watched already keeps its number.
void FileFollower::watch() {
    std::set<int> watches;
    watched_names_.clear();
    const Result<std::string> target = resolve_link(path_);
    for (const std::string& path : {path_, target ? *target : path_}) {
        const std::size_t leaf = path.rfind('/') + 1;
        const std::string directory = leaf == 0 ? "." : path.substr(0, leaf);
        watched_names_.insert(path.substr(leaf));
        const int got = ::inotify_add_watch(inotify_.get(), directory.c_str(),
                                            IN_CLOSE_WRITE | IN_MOVED_TO | IN_ONLYDIR);
        if (got >= 0) watches.insert(got);
    }
    for (const int old : watches_) {
        if (watches.count(old) == 0) ::inotify_rm_watch(inotify_.get(), old);
    }
    watches_ = std::move(watches);
}

// Reads all events of inotify; true if any of them is about the file.
bool FileFollower::was_touched() {
    bool touched = false;
    alignas(inotify_event) char events[4096];
    ssize_t bytes = 0;
    while ((bytes = ::read(inotify_.get(), events, sizeof events)) > 0) {
        const char* at = events;
        while (at < events + bytes) {
            const auto* event = reinterpret_cast<const inotify_event*>(at);
            const char* const name = at + sizeof *event;
            // Any of the lost events may have been about it.
            if ((event->mask & IN_Q_OVERFLOW) != 0) touched = true;
            if (event->len > 0 && watched_names_.count(name) != 0) touched = true;
            at += sizeof *event + event->len;
        }
    }
    return touched;
}

FileFollower::Stamp FileFollower::stamp_of(const std::string& path) {
    struct stat state;
    if (::stat(path.c_str(), &state) != 0) return {};
    const auto ns = [](const timespec& at) { return at.tv_sec * 1'000'000'000 + at.tv_nsec; };
    return {state.st_dev, state.st_ino, state.st_size, ns(state.st_mtim), ns(state.st_ctim)};
}

void FileFollower::check_file() {
    WEFT_ASSERT(follows_here == this);
    const Stamp now = stamp_of(path_);
    // The cause of an earlier error (no descriptor, no permission) may be gone although the stamp
    // is the same.
    if (now == last_stamp_ && error_.ok()) return;
    last_stamp_ = now;
    const Result<GroupView> found = GroupView::load(path_);
    Status error = validate(found);
    const bool is_news = error.code() != error_.code() || error.text() != error_.text();
    error_ = error;
    if (is_news && on_error_) on_error_(error);
    if (!error.ok() || found->digest() == view_->digest()) return;
    view_ = *found;
    on_view_(*view_);
}

// OK if `found` equals the current view or may follow it.
Status FileFollower::validate(const Result<GroupView>& found) const {
    WEFT_ASSERT(view_);
    if (!found) return found.status();
    if (found->digest() == view_->digest()) return {};
    if (found->name() != view_->name()) {
        return fail(Code::failed_precondition, "'" + path_ + "' is of group '" + found->name() +
                                                   "' now, and was of '" + view_->name() + "'");
    }
    if (found->epoch() > view_->epoch()) return {};
    const std::string now = std::to_string(found->epoch()), before = std::to_string(view_->epoch());
    if (found->epoch() == view_->epoch()) {
        return fail(Code::failed_precondition,
                    "'" + path_ + "' has a different view of epoch " + before +
                        " than the one read before: a change must raise the epoch");
    }
    return fail(Code::failed_precondition, "'" + path_ + "' has a view of epoch " + now +
                                               ", but the view of epoch " + before +
                                               " was read before: a change must raise the epoch");
}

}  // namespace weft::group
