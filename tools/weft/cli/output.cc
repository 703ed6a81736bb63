#include "cli/output.h"

#include <unistd.h>

#include <cstdio>
#include <mutex>

#include "storage/file.h"

namespace weft::tool {

namespace {

// The buffer of printf() is flushed later, when errno does not belong to it any more. Therefore the
// failed write itself stores its reason.
struct Output {
    std::mutex mutex;
    Status failure;
};

// Also used while the process exits, after all destructors.
Output& output() {
    static Output& one = *new Output;
    return one;
}

ssize_t write_output(void*, const char* bytes, std::size_t count) {
    Status status =
        storage::write_all(STDOUT_FILENO, as_bytes({bytes, count}), "to standard output");
    const std::lock_guard lock(output().mutex);
    if (status.ok()) return static_cast<ssize_t>(count);
    if (output().failure.ok()) output().failure = std::move(status);
    return 0;  // An error of the stream.
}

}  // namespace

void open_output() {
    cookie_io_functions_t functions{};
    functions.write = write_output;
    FILE* const stream = ::fopencookie(nullptr, "w", functions);
    if (!stream) return;  // No memory: stdout stays as it was.
    if (::isatty(STDOUT_FILENO) != 0) std::setvbuf(stream, nullptr, _IOLBF, 0);
    stdout = stream;
}

Status flush_output() {
    const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    const std::lock_guard lock(output().mutex);
    if (is_written || !output().failure.ok()) return output().failure;
    return fail(Code::internal, "can't write to standard output");
}

}  // namespace weft::tool
