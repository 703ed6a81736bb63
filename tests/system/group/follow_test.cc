// Followers of a group file: the views and errors that they receive.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/unique_fd.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/group_file.h"
#include "support/no_more_threads.h"
#include "support/test_timeout.h"

using namespace weft;
using Catch::Matchers::Contains;
using test::admitting;
using test::GroupDirectory;

namespace {

// The views and errors that a follower received. Outlives the authority.
class Heard {
  public:
    GroupAuthority::ViewCallback on_view() {
        return [this](const GroupView& view) {
            const std::lock_guard lock(mutex_);
            epochs_.push_back(view.epoch());
            changed_.notify_all();
        };
    }
    GroupAuthority::ErrorCallback on_error() {
        return [this](const Status& why) {
            const std::lock_guard lock(mutex_);
            troubles_.push_back(why);
            changed_.notify_all();
        };
    }
    void wait_for_epoch(std::uint64_t epoch) {
        std::unique_lock lock(mutex_);
        REQUIRE(changed_.wait_for(lock, test::test_timeout,
                                  [&] { return !epochs_.empty() && epochs_.back() == epoch; }));
    }
    // Waits until the last error has this code.
    std::string wait_for_trouble(Code code) {
        std::unique_lock lock(mutex_);
        REQUIRE(changed_.wait_for(lock, test::test_timeout, [&] {
            return !troubles_.empty() && troubles_.back().code() == code;
        }));
        return troubles_.back().to_string();
    }
    std::vector<std::uint64_t> epochs() {
        const std::lock_guard lock(mutex_);
        return epochs_;
    }
    std::size_t troubles() {
        const std::lock_guard lock(mutex_);
        return troubles_.size();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::uint64_t> epochs_;
    std::vector<Status> troubles_;
};

struct Followed {
    explicit Followed(const std::filesystem::path& path) : authority(group_file(path)) {
        REQUIRE(authority->follow(heard.on_view(), heard.on_error()).ok());
        heard.wait_for_epoch(1);
    }
    Heard heard;
    std::unique_ptr<GroupAuthority> authority;
};

using Epochs = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("a follower receives the present view and the latest one after changes") {
    const GroupDirectory at;
    Followed by(at.path);
    for (std::uint32_t rank = 1; rank <= 50; ++rank) {
        REQUIRE(at.authority()->change(admitting(rank)).ok());
    }
    by.heard.wait_for_epoch(51);
    REQUIRE(at.authority()->change(admitting(51)).ok());
    by.heard.wait_for_epoch(52);
    const Epochs epochs = by.heard.epochs();
    CHECK(std::is_sorted(epochs.begin(), epochs.end(), std::less_equal<>()));
    CHECK(by.heard.troubles() == 0);
}

TEST_CASE("destroying an authority ends its follower at once") {
    const GroupDirectory at;
    Followed by(at.path);
    const auto begin = std::chrono::steady_clock::now();
    by.authority.reset();
    CHECK(std::chrono::steady_clock::now() - begin < test::promised(500ms));
}

TEST_CASE("a follower that destroys its authority aborts the program with a message") {
    const GroupDirectory at;
    const test::ChildOutput output = test::output_of_child([&] {
        ::alarm(10);
        auto authority = at.authority();
        const Status status = authority->follow([&](const GroupView&) { authority.reset(); }, {});
        while (status.ok()) ::pause();
        return 0;
    });
    CHECK(output.end == -SIGABRT);
    CHECK(output.text.find("GroupAuthority::~GroupAuthority()") != output.text.npos);
}

TEST_CASE("exit() in a callback of a static authority ends the program with its code") {
    const GroupDirectory at;
    const test::ChildOutput output = test::output_of_child([&] {
        static decltype(at.authority()) authority;
        authority = at.authority();
        static std::atomic<bool> follows{false};
        const auto on_view = [](const GroupView&) {
            while (!follows) std::this_thread::yield();
            ::exit(3);
        };
        const Status status = authority->follow(on_view, {});
        follows = true;
        while (status.ok()) ::pause();
        return 0;
    });
    INFO(output.text);
    CHECK(output.end == 3);
}

TEST_CASE("a follower may change the group that it follows") {
    const GroupDirectory at;
    Heard heard;
    const auto authority = at.authority();
    const auto record = heard.on_view();
    const auto on_view = [&](const GroupView& view) {
        const auto rank = static_cast<std::uint32_t>(view.epoch());
        if (rank < 5 && !authority->change(admitting(rank)).ok()) return;
        record(view);
    };
    REQUIRE(authority->follow(on_view, {}).ok());
    heard.wait_for_epoch(5);
    CHECK(authority->view().value().size() == 5);
}

TEST_CASE("a removed group file is an error until it is restored") {
    const GroupDirectory at;
    Followed by(at.path);
    std::filesystem::rename(at.path, at.directory / "away");
    CHECK_THAT(by.heard.wait_for_trouble(Code::not_found), Contains(at.path));
    std::filesystem::rename(at.directory / "away", at.path);
    by.heard.wait_for_trouble(Code::ok);
    CHECK(by.heard.epochs() == Epochs{1});  // The same view as reported before.
    CHECK(by.heard.troubles() == 2);

    std::filesystem::remove(at.path);
    by.heard.wait_for_trouble(Code::not_found);
    at.replace(GroupDirectory::view(4).to_json());
    by.heard.wait_for_epoch(4);
    CHECK(by.heard.epochs() == Epochs{1, 4});
    CHECK(by.heard.troubles() == 4);
}

TEST_CASE("a group file that is written and removed at once is an error") {
    const GroupDirectory at;
    for (int round = 0; round < 20; ++round) {
        std::filesystem::remove(at.path);
        at.write(at.path, GroupDirectory::view().to_json());
        Followed followed(at.path);
        at.write(at.path, GroupDirectory::view().to_json());
        std::filesystem::remove(at.path);
        followed.heard.wait_for_trouble(Code::not_found);
    }
}

TEST_CASE("a partly written group file is an error until it is complete") {
    const GroupDirectory at;
    Followed by(at.path);
    const std::string whole = GroupDirectory::view(2).to_json();
    GroupDirectory::write(at.path, whole.substr(0, whole.size() / 2));
    CHECK_THAT(by.heard.wait_for_trouble(Code::invalid_argument), Contains(at.path));
    CHECK(by.heard.epochs() == Epochs{1});
    GroupDirectory::write(at.path, whole);
    by.heard.wait_for_epoch(2);
    by.heard.wait_for_trouble(Code::ok);
}

TEST_CASE("a follower without an error callback receives views") {
    const GroupDirectory at;
    Heard heard;
    const auto authority = at.authority();
    REQUIRE(authority->follow(heard.on_view(), {}).ok());
    GroupDirectory::write(at.path, "{");
    at.replace(GroupDirectory::view(2).to_json());
    heard.wait_for_epoch(2);
}

TEST_CASE("a group file with an earlier epoch or another group is an error and not followed") {
    const GroupDirectory at;
    Followed by(at.path);
    at.replace(GroupDirectory::view(5).to_json());
    by.heard.wait_for_epoch(5);
    at.replace(GroupDirectory::view(3).to_json());
    CHECK_THAT(by.heard.wait_for_trouble(Code::failed_precondition),
               Contains("a view of epoch 3, but the view of epoch 5 was read before"));
    at.replace(GroupDirectory::view(5).to_json());
    by.heard.wait_for_trouble(Code::ok);
    at.replace(GroupView::make("store", 5, {{7, {"sm://b"}}}).value().to_json());
    CHECK_THAT(by.heard.wait_for_trouble(Code::failed_precondition),
               Contains("a different view of epoch 5 than the one read before"));
    at.replace(GroupDirectory::view(5).to_json());
    by.heard.wait_for_trouble(Code::ok);
    at.replace(GroupView::make("other", 9, {{0, {"sm://a"}}}).value().to_json());
    CHECK_THAT(by.heard.wait_for_trouble(Code::failed_precondition),
               Contains("of group 'other' now, and was of 'store'"));
    at.replace(GroupDirectory::view(6).to_json());
    by.heard.wait_for_epoch(6);
    CHECK(by.heard.epochs() == Epochs{1, 5, 6});
}

TEST_CASE("a change without a directory event is found within a second") {
    const GroupDirectory at, elsewhere;
    GroupDirectory::write(elsewhere.path, GroupDirectory::view(2).to_json());
    Followed by(at.path);
    // A hard link to an existing file causes neither a close event nor a rename event.
    std::filesystem::remove(at.path);
    std::filesystem::create_hard_link(elsewhere.path, at.path);
    by.heard.wait_for_epoch(2);
}

TEST_CASE("a follower follows a symbolic link, also when the link changes") {
    const GroupDirectory at, target, later;
    std::filesystem::remove(at.path);
    std::filesystem::create_symlink(target.path, at.path);
    Followed by(at.path);
    REQUIRE(target.authority()->change(admitting(1)).ok());
    by.heard.wait_for_epoch(2);
    GroupDirectory::write(later.path, GroupDirectory::view(8).to_json());
    std::filesystem::create_symlink(later.path, at.directory / "new");
    std::filesystem::rename(at.directory / "new", at.path);
    by.heard.wait_for_epoch(8);
    REQUIRE(later.authority()->change(admitting(1)).ok());
    by.heard.wait_for_epoch(9);
    CHECK(by.heard.troubles() == 0);
}

TEST_CASE("a group file is followed again when its directory is recreated") {
    const GroupDirectory at;
    Followed by(at.path);
    std::filesystem::remove_all(at.directory);
    by.heard.wait_for_trouble(Code::not_found);
    std::filesystem::create_directory(at.directory);
    GroupDirectory::write(at.path, GroupDirectory::view(2).to_json());
    by.heard.wait_for_epoch(2);
    REQUIRE(at.authority()->change(admitting(1)).ok());
    by.heard.wait_for_epoch(3);
}

TEST_CASE("follow() fails without a thread, without a file and when called twice") {
    const GroupDirectory at;
    Heard heard;
    const auto authority = at.authority();
    {
        const test::NoMoreThreads none;
        const Status status = authority->follow(heard.on_view(), {});
        CHECK(status.code() == Code::resource_exhausted);
        CHECK_THAT(status.to_string(), Contains("no thread"));
    }
    const auto missing = group_file(at.directory / "missing");
    CHECK(missing->follow(heard.on_view(), {}).code() == Code::not_found);
    CHECK(heard.epochs().empty());
    // follow() may be called again after a failure.
    REQUIRE(authority->follow(heard.on_view(), {}).ok());
    heard.wait_for_epoch(1);
    const Status twice = authority->follow(heard.on_view(), {});
    CHECK(twice.code() == Code::failed_precondition);
    CHECK_THAT(twice.to_string(), Contains("is followed already"));
}

TEST_CASE("follow() fails without free descriptors") {
    const GroupDirectory at;
    CHECK(test::end_of_child([&] {
              const auto authority = at.authority();
              const base::UniqueFd next(::dup(0));
              const auto few = static_cast<rlim_t>(next.get() + 1);
              const rlimit limit{few, few};
              if (!next || ::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 99;
              return static_cast<int>(authority->follow([](const GroupView&) {}, {}).code());
          }) == static_cast<int>(Code::resource_exhausted));
}
