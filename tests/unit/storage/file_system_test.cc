// The store on file systems that can't sync directories, and its client on hosts without /proc.
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "storage/root.h"
#include "support/bare_machine.h"
#include "support/capability.h"
#include "support/child.h"
#include "support/store_rig.h"

using namespace weft;

namespace weft::storage_file_system_test {
namespace {

using test::read_text;
using test::TemporaryDirectory;

constexpr int not_allowed = 100;

Status write_whole(Result<storage::UnfinishedFile> file, const std::string& text) {
    if (!file) return file.status();
    const ByteView bytes(reinterpret_cast<const std::byte*>(text.data()), text.size());
    if (Status status = file->append(bytes); !status.ok()) return status;
    return file->commit(std::nullopt);
}

#ifdef WEFT_TEST_TRAPPED_CALLS
// 0: an object in directories of its own is put and removed. Else the step that failed.
int puts_and_removes(const std::string& path, int error) {
    if (!test::refuse_directory_sync(error)) return not_allowed;
    Result<storage::Root> root = storage::Root::open(path);
    if (!root) return 1;
    if (!write_whole(root->create("d/e/a"), "object").ok()) return 2;
    if (read_text(path + "/d/e/a") != "object") return 3;
    return root->remove("d/e/a").ok() ? 0 : 4;
}

TEST_CASE("storage: a store works without directory syncs, but a put fails when a sync fails") {
    const std::pair<int, int> cases[] = {{EINVAL, 0}, {ENOTSUP, 0}, {EIO, 2}};
    for (const auto& one : cases) {
        const TemporaryDirectory files;
        const int got = test::end_of_child([&] { return puts_and_removes(files.path, one.first); });
        if (got == not_allowed) {
            test::note_capability(
                "storage", "not tested here: file systems without fsync, as seccomp is refused");
            return;
        }
        INFO(one.first);
        CHECK(got == one.second);
    }
}
#endif

TEST_CASE("storage: a store works without attributes, but a put fails when the disk is full") {
    const std::pair<int, int> cases[] = {{EPERM, 0},   {EACCES, 0}, {ENOSYS, 0},
                                         {ENOTSUP, 0}, {ENOSPC, 2}, {EDQUOT, 2}};
    for (const auto& one : cases) {
        INFO(one.first);
        const TemporaryDirectory files;
        const int got = test::end_of_child([&] {
            if (!test::refuse_call(SYS_fsetxattr, static_cast<unsigned>(one.first))) {
                return not_allowed;
            }
            Result<storage::Root> root = storage::Root::open(files.path);
            if (!root) return 1;
            Result<storage::UnfinishedFile> file = root->create("a");
            if (!file || !file->append(as_bytes("object")).ok()) return 3;
            const Status status = file->commit(1);
            if (status.ok()) return read_text(files.path + "/a") == "object" ? 0 : 4;
            // Nothing was stored, so the client may retry.
            const bool is_there = ::access((files.path + "/a").c_str(), F_OK) == 0;
            return status.is_rejection() && !is_there ? 2 : 5;
        });
        CHECK(got == one.second);
    }
}

// The status of a file that a process of `user` puts in place of one of `owner` and `group`. Only
// root may give files away.
struct stat replaced_by(uid_t user, mode_t mode, uid_t owner, gid_t group) {
    const TemporaryDirectory files;
    const std::string path = files.path + "/a";
    (void)::chmod(files.path.c_str(), 0777);
    const int end = test::end_of_child([&] {
        storage::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        if (!file || ::fchown(file.get(), owner, group) != 0) return not_allowed;
        if (::fchmod(file.get(), mode) != 0) return 1;
        if (user != 0 && (::setgroups(0, nullptr) != 0 || ::setresgid(user, user, user) != 0 ||
                          ::setresuid(user, user, user) != 0)) {
            return not_allowed;
        }
        storage::Fd directory(::open(files.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        const bool done =
            write_whole(storage::UnfinishedFile::create(std::move(directory), "a", "a"), "new")
                .ok();
        return done ? 0 : 2;
    });
    struct stat file {};
    if (end == not_allowed) return file;
    CHECK(end == 0);
    CHECK(::stat(path.c_str(), &file) == 0);
    return file;
}

TEST_CASE("storage: a file that replaces another has its mode, its owner and its group") {
    const uid_t self = ::geteuid();
    const gid_t group = ::getegid();
    CHECK((replaced_by(0, 0640, self, group).st_mode & 07777) == 0640);
    CHECK((replaced_by(0, 0777, self, group).st_mode & 07777) == 0777);
    if (self != 0) {
        test::note_capability("storage",
                              "not tested here: files of other users, as this is not root");
        return;
    }
    const struct stat by_root = replaced_by(0, 04755, 4001, 4002);
    CHECK(by_root.st_uid == 4001);
    CHECK(by_root.st_gid == 4002);
    CHECK((by_root.st_mode & 07777) == 04755);
    // By another user: without the rights of that owner and group.
    const struct stat by_other = replaced_by(4003, 06775, 4001, 4002);
    CHECK(by_other.st_uid == 4003);
    CHECK(by_other.st_gid == 4003);
    CHECK((by_other.st_mode & 07777) == 0705);
}

TEST_CASE("storage: a file is downloaded on a host without /proc") {
    for (const bool has_proc : {true, false}) {
        const TemporaryDirectory files;
        const int end = test::end_of_child([&] {
            if (!has_proc && !test::leave_proc()) return not_allowed;
            storage::Fd directory(::open(files.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
            const Status status = write_whole(
                storage::UnfinishedFile::create_nameless(std::move(directory), "a", "a"), "object");
            return status.ok() ? 0 : 1;
        });
        if (end == not_allowed) {
            test::note_capability(
                "storage", "not tested here: hosts without /proc, as namespaces are refused");
            return;
        }
        INFO(has_proc);
        CHECK(end == 0);
        CHECK(read_text(files.path + "/a") == "object");
    }
}

}  // namespace
}  // namespace weft::storage_file_system_test
