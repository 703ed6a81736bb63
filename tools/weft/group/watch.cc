// `weft group watch`: prints a line for each change of a group.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdio>
#include <optional>

#include <weft/group_authority.h>

#include "base/text.h"
#include "base/unique_fd.h"
#include "cli/number.h"
#include "cli/output.h"
#include "group/group.h"
#include "storage/file.h"

namespace weft::tool {

namespace {

struct WatchOptions {
    std::string group;
    std::uint64_t until_epoch = UINT64_MAX;  // The last epoch possible.
};

class Watch {
  public:
    Watch(const WatchOptions& options, bool json) : options_(options), json_(json) {}

    // Returns at a signal, at the epoch, or when output fails.
    Status run();

  private:
    void print_changes(const GroupView& view);
    void print_start(const GroupView& view) const;
    void end() const;

    const WatchOptions& options_;
    const bool json_;
    std::optional<GroupView> last_;
    base::UniqueFd finished_;
};

void Watch::end() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = ::write(finished_.get(), &one, sizeof one);
}

void Watch::print_start(const GroupView& view) const {
    if (json_) {
        print({{"name", view.name()}, {"epoch", view.epoch()}, {"members", view.size()}});
        return;
    }
    std::printf("epoch %llu: group %s, %u member%s\n",
                static_cast<unsigned long long>(view.epoch()), base::printable(view.name()).c_str(),
                view.size(), view.size() == 1 ? "" : "s");
}

void Watch::print_changes(const GroupView& view) {
    if (!last_) {
        print_start(view);
    } else {
        for (const MemberChange& change : changes_between(*last_, view)) {
            if (json_) {
                print(json_of(change, view));
            } else {
                std::printf("%s\n", line_for(change, view).c_str());
            }
        }
    }
    last_ = view;
    if (view.epoch() >= options_.until_epoch || !flush_output().ok()) end();
}

void print_error(const std::string& file, const Status& why) {
    const std::string text =
        why.ok() ? "the group file '" + file + "' is valid again" : why.to_string();
    std::fprintf(stderr, "weft: %s\n", base::printable(text).c_str());
}

Status Watch::run() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    finished_.reset(::eventfd(0, EFD_CLOEXEC));
    const base::UniqueFd signalled(::signalfd(-1, &signals, SFD_CLOEXEC));
    if (!finished_ || !signalled) return storage::errno_status(errno, "can't wait for signals");
    const auto authority = group_file(options_.group);
    Status status =
        authority->follow([this](const GroupView& view) { print_changes(view); },
                          [this](const Status& why) { print_error(options_.group, why); });
    if (!status.ok()) return status;
    pollfd ends[] = {{finished_.get(), POLLIN, 0}, {signalled.get(), POLLIN, 0}};
    while (::poll(ends, 2, -1) < 0 && errno == EINTR) {
    }
    if (ends[1].revents == 0) return {};
    // The last output may block while the reader stalls; a second signal ends the process.
    signalfd_siginfo first;
    [[maybe_unused]] const auto taken = ::read(signalled.get(), &first, sizeof first);
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    return {};
}

}  // namespace

void set_up_group_watch(CLI::App& command, Invocation& invocation) {
    auto options = std::make_shared<WatchOptions>();
    command.description("Print the changes of a group until SIGTERM or SIGINT");
    command.footer(
        "The first line is the current view. With --json each line is an object of its own. "
        "Errors of the file are printed to standard error.\n"
        "Example: weft group watch --group store.json");
    add_group_option(command, options->group);
    command
        .add_option("--until-epoch", options->until_epoch, "End at this epoch, or at a later one")
        ->transform(whole_number(1));
    command.callback(
        [options, &invocation] { invocation.status = Watch(*options, invocation.json).run(); });
}

}  // namespace weft::tool
