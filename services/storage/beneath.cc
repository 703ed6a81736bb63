#include "beneath.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#ifndef SYS_openat2  // Since Linux 5.6; absent from older headers.
#define SYS_openat2 437
#endif

namespace storage {

// As in <linux/openat2.h>.
struct HowToOpen {
    std::uint64_t flags = 0;
    std::uint64_t mode = 0;
    std::uint64_t resolve = 0;
};
static constexpr std::uint64_t no_magic_links = 0x02;
static constexpr std::uint64_t beneath = 0x08;

static bool is_link(int directory, const char* name) {
    struct stat found;
    return ::fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(found.st_mode);
}

static Fd open_without_links(int directory, std::string_view path, int flags) {
    Fd held;
    int at = directory;
    while (true) {
        const std::size_t end = path.find('/');
        const std::string part(path.substr(0, end));
        if (part == "..") {
            errno = EXDEV;
            return Fd();
        }
        const bool last = end == path.npos;
        const int with = last ? flags : O_RDONLY | O_DIRECTORY | O_CLOEXEC;
        Fd next(::openat(at, part.c_str(), with | O_NOFOLLOW));
        if (!next) {
            // openat() reports a link to a directory as ENOTDIR when it does not follow links.
            if (errno == ENOTDIR) errno = is_link(at, part.c_str()) ? ELOOP : ENOTDIR;
            return next;
        }
        if (last) return next;
        held = std::move(next);
        at = held.get();
        path.remove_prefix(end + 1);
    }
}

Fd open_beneath(int directory, const char* path, int flags) {
    HowToOpen how;
    how.flags = static_cast<std::uint64_t>(flags);
    how.resolve = beneath | no_magic_links;
    const long fd = ::syscall(SYS_openat2, directory, path, &how, sizeof how);
    if (fd >= 0) return Fd(static_cast<int>(fd));
    if (errno != ENOSYS && errno != EPERM) return Fd();
    return open_without_links(directory, path, flags);
}

}  // namespace storage
