// Changes of a group that a group file holds.
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "support/catch.h"
#include "support/child.h"
#include "support/group_file.h"

using namespace weft;
using Catch::Matchers::Contains;
using test::admitting;
using test::GroupDirectory;

namespace {

constexpr uid_t nobody_uid = 65534;

Status change(const GroupDirectory& at, const GroupAuthority::Decision& decision) {
    return at.authority()->change(decision).status();
}

// Makes a change in a separate process without root's rights. Returns its status code.
Code change_as_nobody(const GroupDirectory& at) {
    return static_cast<Code>(test::end_of_child([&] {
        if (::geteuid() == 0 && ::setuid(nobody_uid) != 0) return 99;
        return static_cast<int>(change(at, admitting(1)).code());
    }));
}

}  // namespace

TEST_CASE("change() returns the new view and stores it in the group file") {
    const GroupDirectory at;
    const auto authority = at.authority();
    CHECK(authority->view().value().digest() == GroupDirectory::view().digest());
    const GroupView after = authority->change(admitting(5)).value();
    CHECK(after.epoch() == 2);
    CHECK(*after.find(5) == Member{5, {"sm://x-5"}, 2, false});
    CHECK(authority->view().value().digest() == after.digest());
    CHECK(at.files() == "group.json group.json.lock");
}

TEST_CASE("changes by several threads are made one after the other") {
    const GroupDirectory at;
    constexpr std::uint32_t threads = 6, each = 20;
    std::atomic<std::uint32_t> failed{0};
    std::vector<std::thread> all;
    for (std::uint32_t thread = 0; thread < threads; ++thread) {
        all.emplace_back([&, thread, authority = at.authority()] {
            for (std::uint32_t i = 0; i < each; ++i) {
                failed += !authority->change(admitting(1 + thread * each + i)).ok();
            }
        });
    }
    for (std::thread& thread : all) thread.join();
    CHECK(failed == 0);
    const GroupView view = at.authority()->view().value();
    CHECK(view.epoch() == 1 + threads * each);
    CHECK(view.size() == 1 + threads * each);
}

TEST_CASE("concurrent changes by processes are all kept, and a reader sees complete views only") {
    const GroupDirectory at;
    constexpr std::uint32_t processes = 4, each = 20;
    std::vector<pid_t> children;
    for (std::uint32_t process = 0; process < processes; ++process) {
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            ::alarm(60);
            bool good = true;
            for (std::uint32_t i = 0; i < each; ++i) {
                good = change(at, admitting(1 + process * each + i)).ok() && good;
            }
            ::_exit(good ? 0 : 1);
        }
        children.push_back(child);
    }
    const auto reader = at.authority();
    std::uint64_t epoch = 0;
    while (epoch < 1 + processes * each) {
        const Result<GroupView> view = reader->view();
        INFO(view.status().to_string());
        REQUIRE(view.ok());
        REQUIRE(view->size() == view->epoch());
        REQUIRE(view->epoch() >= epoch);
        epoch = view->epoch();
        if (::waitpid(-1, nullptr, WNOHANG) < 0) break;  // All have ended.
    }
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    CHECK(reader->view().value().size() == 1 + processes * each);
}

TEST_CASE("a decision that fails or returns an invalid view changes nothing") {
    const GroupDirectory at;
    const std::string before = GroupDirectory::read(at.path);
    const Status refused =
        change(at, [](const GroupView&) { return fail(Code::aborted, "not today"); });
    CHECK(refused.to_string() == "ABORTED: not today");
    const Status other_group = change(
        at, [](const GroupView& view) { return GroupView::make("other", 2, view.members()); });
    CHECK(other_group.code() == Code::invalid_argument);
    CHECK_THAT(other_group.to_string(), Contains("group 'other' can't follow on one of 'store'"));
    for (const std::uint64_t epoch : {0, 1}) {
        const Status not_later = change(at, [&](const GroupView& view) {
            return GroupView::make(view.name(), epoch, {{3, {"sm://c"}}});
        });
        CHECK(not_later.code() == Code::invalid_argument);
        CHECK_THAT(not_later.to_string(), Contains("can't follow on one of epoch 1"));
    }
    CHECK(GroupDirectory::read(at.path) == before);

    struct stat was, is;
    REQUIRE(::stat(at.path.c_str(), &was) == 0);
    CHECK(change(at, [](const GroupView& view) { return view; }).ok());
    REQUIRE(::stat(at.path.c_str(), &is) == 0);
    CHECK(was.st_ino == is.st_ino);
}

TEST_CASE("a change inside a decision is refused for the same file and allowed for another") {
    const GroupDirectory at, other;
    const auto authority = at.authority();
    Status inside, elsewhere;
    const Status outside = change(at, [&](const GroupView& now) -> Result<GroupView> {
        inside = authority->change(admitting(5)).status();
        elsewhere = change(other, admitting(5));
        return now;
    });
    CHECK(outside.ok());
    CHECK(elsewhere.ok());
    CHECK(inside.code() == Code::failed_precondition);
    CHECK(inside.text().find("GroupAuthority::change()") != std::string_view::npos);
    CHECK(change(at, nullptr).code() == Code::invalid_argument);
    CHECK(authority->follow(nullptr, nullptr).code() == Code::invalid_argument);
}

TEST_CASE("a missing or malformed group file is not changed") {
    const GroupDirectory at;
    std::filesystem::remove(at.path);
    const Status missing = change(at, admitting(1));
    CHECK(missing.code() == Code::not_found);
    CHECK_THAT(missing.to_string(), Contains(at.path));
    CHECK(at.files().empty());
    GroupDirectory::write(at.path, "{");
    CHECK(change(at, admitting(1)).code() == Code::invalid_argument);
    CHECK(GroupDirectory::read(at.path) == "{");
}

TEST_CASE("a change keeps the file's mode and owner") {
    const GroupDirectory at;
    REQUIRE(::chmod(at.path.c_str(), 0640) == 0);
    const bool is_root = ::geteuid() == 0;
    if (is_root) REQUIRE(::chown(at.path.c_str(), nobody_uid, nobody_uid) == 0);
    REQUIRE(change(at, admitting(1)).ok());
    struct stat state;
    REQUIRE(::stat(at.path.c_str(), &state) == 0);
    CHECK((state.st_mode & 07777) == 0640);
    CHECK(state.st_uid == (is_root ? nobody_uid : ::geteuid()));
    // Users that may write the file may take the lock.
    const gid_t group = state.st_gid;
    REQUIRE(::stat((at.path.string() + ".lock").c_str(), &state) == 0);
    CHECK((state.st_mode & 07777) == 0640);
    CHECK(state.st_gid == group);
}

TEST_CASE("a change by another user keeps the file's group, or is refused") {
    if (::geteuid() != 0) return;  // Only root can make files of other users.
    constexpr gid_t theirs = 4321;
    const GroupDirectory at;
    REQUIRE(::chmod(at.path.parent_path().c_str(), 0777) == 0);
    REQUIRE(::chown(at.path.c_str(), 1, theirs) == 0);
    REQUIRE(::chmod(at.path.c_str(), 0664) == 0);
    const auto change_as = [&](const std::vector<gid_t>& groups) {
        return static_cast<Code>(test::end_of_child([&] {
            if (::setgroups(groups.size(), groups.data()) != 0 || ::setgid(nobody_uid) != 0 ||
                ::setuid(nobody_uid) != 0) {
                return 99;
            }
            return static_cast<int>(change(at, admitting(1)).code());
        }));
    };
    struct stat state {};
    SECTION("a member of the group") {
        CHECK(change_as({theirs}) == Code::ok);
        REQUIRE(::stat(at.path.c_str(), &state) == 0);
        CHECK(at.authority()->view().value().epoch() == 2);
    }
    SECTION("a user outside of the group that may write the file") {
        REQUIRE(::chmod(at.path.c_str(), 0666) == 0);
        CHECK(change_as({}) == Code::permission_denied);
        REQUIRE(::stat(at.path.c_str(), &state) == 0);
        CHECK(at.authority()->view().value().epoch() == 1);
    }
    CHECK(state.st_gid == theirs);
    CHECK(at.files() == "group.json group.json.lock");
}

TEST_CASE("a change is refused without write permission") {
    const GroupDirectory at;
    const std::string before = GroupDirectory::read(at.path);
    // The lock file can't be created.
    REQUIRE(::chmod(at.directory.c_str(), 0555) == 0);
    CHECK(change_as_nobody(at) == Code::permission_denied);
    // The lock file exists, but no new file can be created.
    GroupDirectory::write(at.path.string() + ".lock", "");
    REQUIRE(::chmod(at.path.c_str(), 0666) == 0);
    CHECK(change_as_nobody(at) == Code::permission_denied);
    // The directory is writable, but the file is not.
    REQUIRE(::chmod(at.directory.c_str(), 0777) == 0);
    REQUIRE(::chmod(at.path.c_str(), 0444) == 0);
    CHECK(change_as_nobody(at) == Code::permission_denied);
    CHECK(GroupDirectory::read(at.path) == before);
    // Both are writable; the lock file may belong to another user.
    REQUIRE(::chmod(at.path.c_str(), 0666) == 0);
    CHECK(change_as_nobody(at) == Code::ok);
}

TEST_CASE("a full disk leaves the group file unchanged") {
    const GroupDirectory at;
    const std::string before = GroupDirectory::read(at.path);
    const auto code = static_cast<Code>(test::end_of_child([&] {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit little{20, 20};
        if (::setrlimit(RLIMIT_FSIZE, &little) != 0) return 99;
        return static_cast<int>(change(at, admitting(1)).code());
    }));
    CHECK(code == Code::resource_exhausted);
    CHECK(GroupDirectory::read(at.path) == before);
    CHECK(at.files() == "group.json group.json.lock");
}

TEST_CASE("a change fails when its lock file is a directory") {
    const GroupDirectory at;
    std::filesystem::create_directory(at.path.string() + ".lock");
    const Status status = change(at, admitting(1));
    CHECK(status.code() == Code::failed_precondition);
    CHECK_THAT(status.to_string(), Contains("can't lock '" + at.path.string() + ".lock'"));
}

TEST_CASE("a process that dies in a change blocks no other one and leaves no file") {
    const GroupDirectory at;
    GroupDirectory::write(at.directory / ".group.json.weft-tmp", "half of");
    CHECK(test::end_of_child([&] {
              const Status never = change(at, [](const GroupView& view) -> Result<GroupView> {
                  ::raise(SIGKILL);
                  return view;
              });
              return never.ok() ? 0 : 1;
          }) == -SIGKILL);
    REQUIRE(change(at, admitting(1)).ok());
    CHECK(at.files() == "group.json group.json.lock");
    CHECK(at.authority()->view().value().epoch() == 2);
}

TEST_CASE("a symbolic link stays a link, and changes through it and past it are serialized") {
    const GroupDirectory at;
    const std::filesystem::path elsewhere = at.directory / "elsewhere";
    std::filesystem::create_directory(elsewhere);
    std::filesystem::create_symlink("../group.json", elsewhere / "link");
    const auto by_link = group_file(elsewhere / "link");
    REQUIRE(by_link->change(admitting(1)).ok());
    REQUIRE(change(at, admitting(2)).ok());
    REQUIRE(by_link->change(admitting(3)).ok());
    CHECK(std::filesystem::is_symlink(elsewhere / "link"));
    CHECK_FALSE(std::filesystem::is_symlink(at.path));
    CHECK(at.authority()->view().value().epoch() == 4);
    CHECK(at.files() == "elsewhere group.json group.json.lock");

    std::filesystem::remove(at.path);
    CHECK(by_link->change(admitting(4)).status().code() == Code::not_found);
}

TEST_CASE("a group file may be named without its directory") {
    const GroupDirectory at;
    CHECK(test::end_of_child([&] {
              if (::chdir(at.directory.c_str()) != 0) return 1;
              return group_file("group.json")->change(admitting(1)).ok() ? 0 : 2;
          }) == 0);
    CHECK(at.authority()->view().value().epoch() == 2);
}

TEST_CASE("a relative group file is resolved in the working directory of group_file()") {
    const GroupDirectory here;
    const GroupDirectory there;
    there.replace(GroupDirectory::view(7).to_json());
    CHECK(test::end_of_child([&] {
              if (::chdir(here.directory.c_str()) != 0) return 1;
              const auto authority = group_file("group.json");
              if (::chdir(there.directory.c_str()) != 0) return 2;
              return static_cast<int>(authority->view().value().epoch()) + 10;
          }) == 11);
}
