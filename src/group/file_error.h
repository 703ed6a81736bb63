// Errors of system calls on a group file.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include <weft/status.h>

namespace weft::group {

// `what` failed with errno: NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk, quota,
// descriptors), else FAILED_PRECONDITION.
inline Status file_error(const std::string& what) {
    const int error = errno;
    const auto code = [error] {
        switch (error) {
            case ENOENT: return Code::not_found;
            case EACCES:
            case EPERM:
            case EROFS: return Code::permission_denied;
            case ENOSPC:
            case EDQUOT:
            case EFBIG:
            case EMFILE:
            case ENFILE: return Code::resource_exhausted;
            default: return Code::failed_precondition;
        }
    };
    return fail(code(), what + ": " + std::generic_category().message(error));
}

}  // namespace weft::group
