#include "listing.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "name.h"

namespace storage {

using weft::Result;
using weft::Status;

namespace {

struct Child {
    std::string leaf;
    bool is_directory = false;
};

// The entry was deleted meanwhile, or this process may not read it. Other errors, as exhausted
// descriptors, are reported: skipping them would leave existing objects out of the listing.
bool is_skipped(int error) {
    return error == ENOENT || error == EACCES || error == EPERM || error == ELOOP ||
           error == ENOTDIR || error == ENXIO;
}

Status unlistable(int error, const std::string& name) {
    return weft::rejected(
        errno_status(error, name.empty() ? "can't list the root" : "can't list " + quote(name)));
}

// Objects and directories of one directory, in order; links and unfinished objects are skipped.
Result<std::vector<Child>> children_of(const Fd& directory_fd, const std::string& path) {
    std::vector<Child> children;
    const int directory = directory_fd.get();
    Fd again(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    std::unique_ptr<DIR, int (*)(DIR*)> entries(again ? ::fdopendir(again.get()) : nullptr,
                                                ::closedir);
    if (!entries) return unlistable(errno, path);
    again.release();
    while (true) {
        errno = 0;
        const dirent* entry = ::readdir(entries.get());
        if (!entry && errno != 0) return unlistable(errno, path);
        if (!entry) break;
        const std::string leaf = entry->d_name;
        if (!validate_name(leaf).ok() || is_unfinished(leaf)) continue;
        unsigned char type = entry->d_type;
        if (type == DT_UNKNOWN) {
            struct stat file {};
            if (::fstatat(directory, leaf.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) continue;
            type = S_ISDIR(file.st_mode) ? DT_DIR : S_ISREG(file.st_mode) ? DT_REG : DT_UNKNOWN;
        }
        if (type == DT_DIR || type == DT_REG) children.push_back({leaf, type == DT_DIR});
    }
    std::sort(children.begin(), children.end(),
              [](const Child& a, const Child& b) { return a.leaf < b.leaf; });
    return children;
}

struct Walk {
    const std::string& prefix;
    const std::function<bool(const std::string&, const ObjectInfo&)>& take;
    Status failure{};

    // Returns false after it has set a failure.
    bool skips_error(int error, const std::string& name) {
        if (!is_skipped(error)) failure = unlistable(error, name);
        return failure.ok();
    }
    bool may_hold(const std::string& directory) const {
        const std::string below = directory + "/";
        return below.starts_with(prefix) || prefix.starts_with(below);
    }

    bool visit_object(int directory, const std::string& leaf, const std::string& name) {
        const Fd fd(
            ::openat(directory, leaf.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
        if (!fd) return skips_error(errno, name);
        const Result<ObjectInfo> info = info_of(fd.get(), name);
        return !info || take(name, *info);
    }

    // `after` is relative to the directory; empty: from its start. Returns false when `take` needs
    // no more, or with a failure.
    bool visit(Fd directory, const std::string& path, std::string_view after) {
        const std::string_view first = after.substr(0, after.find('/'));
        const bool deeper = first.size() < after.size();
        const Result<std::vector<Child>> children = children_of(directory, path);
        if (!children) {
            failure = children.status();
            return false;
        }
        for (const Child& child : *children) {
            if (child.leaf < first) continue;
            const bool on_the_way = !after.empty() && child.leaf == first;
            const std::string name = path.empty() ? child.leaf : path + "/" + child.leaf;
            if (!child.is_directory) {
                if (on_the_way || !name.starts_with(prefix)) continue;
                if (!visit_object(directory.get(), child.leaf, name)) return false;
                continue;
            }
            if (on_the_way && !deeper) continue;
            if (!may_hold(name)) continue;
            Fd below(::openat(directory.get(), child.leaf.c_str(),
                              O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
            if (!below && skips_error(errno, name)) continue;
            if (!below) return false;
            const auto rest = on_the_way ? after.substr(first.size() + 1) : std::string_view();
            if (!visit(std::move(below), name, rest)) return false;
        }
        return true;
    }
};

}  // namespace

Status list(const Root& root, const std::string& prefix, const std::string& after,
            const std::function<bool(const std::string&, const ObjectInfo&)>& take) {
    if (Status status = validate_prefix(prefix); !status.ok()) return status;
    if (!after.empty()) {
        if (Status status = validate_name(after); !status.ok()) return status;
    }
    Result<Fd> directory = root.open_directory("");
    if (!directory) return std::move(directory).status();
    Walk walk{prefix, take};
    walk.visit(*std::move(directory), "", after);
    return walk.failure;
}

}  // namespace storage
