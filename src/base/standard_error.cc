#include "base/standard_error.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace weft::base {

static constexpr int fatal_message_wait_ms = 1000;

// Without a reader at the other end a write would raise SIGPIPE, which ends the program.
static bool has_room(int wait_ms) {
    pollfd error{STDERR_FILENO, POLLOUT, 0};
    return poll(&error, 1, wait_ms) == 1 && error.revents == POLLOUT;
}

std::size_t write_to_standard_error(std::string_view text, int wait_ms) {
    std::size_t put = 0;
    while (put < text.size() && has_room(wait_ms)) {
        const ssize_t bytes = write(STDERR_FILENO, text.data() + put,
                                    std::min<std::size_t>(text.size() - put, PIPE_BUF));
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes <= 0) break;
        put += static_cast<std::size_t>(bytes);
    }
    return put;
}

void write_fatal_message(std::initializer_list<std::string_view> parts) {
    char text[PIPE_BUF];
    std::size_t bytes = 0;
    for (const std::string_view part : parts) {
        bytes += part.copy(text + bytes, sizeof text - bytes);
    }
    write_to_standard_error({text, bytes}, fatal_message_wait_ms);
}

}  // namespace weft::base
