#include "base/standard_error.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace weft::base {

// With nothing at the other end a write would raise SIGPIPE, which ends a program.
static bool has_room() {
    pollfd error{STDERR_FILENO, POLLOUT, 0};
    return poll(&error, 1, 0) == 1 && error.revents == POLLOUT;
}

bool put_to_standard_error(std::string_view text) {
    while (!text.empty()) {
        if (!has_room()) return false;
        const ssize_t bytes =
            write(STDERR_FILENO, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes <= 0) return false;
        text.remove_prefix(static_cast<std::size_t>(bytes));
    }
    return true;
}

}  // namespace weft::base
