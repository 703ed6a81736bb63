#include "na/sm/names.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>

#include "na/memory_file.h"

namespace weft::na::sm {

// Accepts only a directory of this user that no other user can enter: no other user can replace the
// files in it.
static Status validate_directory(const std::string& path) {
    struct stat is {};
    if (::lstat(path.c_str(), &is) != 0) return fail(Code::unavailable, errno_text(path));
    if (!S_ISDIR(is.st_mode)) return fail(Code::permission_denied, path + " is not a directory");
    if (is.st_uid != ::geteuid()) {
        return fail(Code::permission_denied, path + " belongs to uid " + std::to_string(is.st_uid) +
                                                 ", not to the user of this process");
    }
    if ((is.st_mode & 077) != 0) {
        return fail(Code::permission_denied, path + " is open to other users; chmod 700 it");
    }
    return {};
}

static bool is_own_directory(const char* path) {
    struct stat is {};
    return path && path[0] == '/' && ::stat(path, &is) == 0 && S_ISDIR(is.st_mode) &&
           is.st_uid == ::geteuid() && (is.st_mode & 022) == 0;
}

Result<std::string> names_directory() {
    const char* runtime = std::getenv("XDG_RUNTIME_DIR");
    const std::string path = is_own_directory(runtime) ? std::string(runtime) + "/weft"
                                                       : "/tmp/weft-" + std::to_string(::geteuid());
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
        return fail(Code::unavailable, errno_text("making " + path));
    }
    if (Status status = validate_directory(path); !status.ok()) return status;
    return path;
}

Result<sockaddr_un> socket_address(const std::string& directory, std::string_view name) {
    Result<sockaddr_un> address = unix_address(directory + "/" + std::string(name));
    if (address) return address;
    return fail(Code::invalid_argument,
                std::string(address.status().text()) + "; shorten the name or XDG_RUNTIME_DIR");
}

Result<Listening> Listening::open(std::string_view name) {
    const std::string uri = "sm://" + std::string(name);
    Result<std::string> directory = names_directory();
    if (!directory) return std::move(directory).status().in(uri);
    Result<sockaddr_un> address = socket_address(*directory, std::string(name) + ".sock");
    if (!address) return std::move(address).status();
    const std::string path = *directory + "/" + std::string(name);
    Result<NamedSocket> socket =
        NamedSocket::listen(path + ".sock", path + ".lock", SOCK_SEQPACKET, uri);
    if (!socket) return std::move(socket).status();
    Listening listening;
    listening.socket_ = *std::move(socket);
    listening.name_ = name;
    return listening;
}

}  // namespace weft::na::sm
