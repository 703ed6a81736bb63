// The store on file systems that can't sync directories, and its client on hosts without /proc.
#include <fcntl.h>

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

TEST_CASE(
    "storage: a file system that can't sync directories keeps objects, and a failed one says so") {
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
