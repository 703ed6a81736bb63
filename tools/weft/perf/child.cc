#include "perf/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "cli/cpus.h"

namespace weft::tool {

// More than any child prints.
static constexpr std::size_t output_max = 1u << 20;

[[noreturn]] static void become(char** argv, int out, pid_t parent, const Child::Options& options) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);  // The parent died before prctl().
    if (!options.cpus.empty()) bind_to_cpus(options.cpus);
    dup2(out, STDOUT_FILENO);
    if (options.with_errors) dup2(out, STDERR_FILENO);
    execvp(argv[0], argv);
    _exit(127);
}

Result<Child> Child::start(const std::vector<std::string>& words, Options options) {
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return fail(Code::resource_exhausted, "no file descriptor left (ulimit -n)");
    }
    base::UniqueFd from(ends[0]);
    const base::UniqueFd to(ends[1]);
    // Else a sanitizer's _exit() writes these buffers in the child, too.
    std::fflush(nullptr);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) return fail(Code::resource_exhausted, "no process can be started (fork)");
    if (pid == 0) become(argv.data(), to.get(), parent, options);
    return Child(pid, std::move(from));
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      from_(std::move(other.from_)),
      output_(std::move(other.output_)) {}

Child& Child::operator=(Child&& other) noexcept {
    if (this == &other) return *this;
    stop();
    pid_ = std::exchange(other.pid_, -1);
    from_ = std::move(other.from_);
    output_ = std::move(other.output_);
    return *this;
}

Child::ReadResult Child::read_some(Duration limit) {
    pollfd watched{from_.get(), POLLIN, 0};
    const int wait_ms =
        limit <= 0ns ? 0 : static_cast<int>(std::min<Duration>(limit, 1h) / 1ms) + 1;
    if (poll(&watched, 1, wait_ms) <= 0) return ReadResult::nothing;
    char bytes[4096];
    const ssize_t count = read(from_.get(), bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) return ReadResult::nothing;
    if (count <= 0) return ReadResult::end;
    const std::size_t room = output_max - std::min(output_max, output_.size());
    output_.append(bytes, std::min(static_cast<std::size_t>(count), room));
    return ReadResult::something;
}

Result<std::string> Child::line(Duration limit) {
    const TimePoint end = std::chrono::steady_clock::now() + limit;
    while (true) {
        if (const std::size_t at = output_.find('\n'); at != std::string::npos) {
            std::string line = output_.substr(0, at);
            output_.erase(0, at + 1);
            return line;
        }
        const Duration left = end - std::chrono::steady_clock::now();
        const ReadResult result = read_some(left);
        if (result == ReadResult::end) return fail(Code::unavailable, "the process ended");
        // A process that prints without newlines has no line either.
        if (left <= 0ns && output_.find('\n') == std::string::npos) {
            return fail(Code::deadline_exceeded, "the process prints no line");
        }
    }
}

Result<std::string> Child::finish(Duration limit) {
    const TimePoint end = std::chrono::steady_clock::now() + limit;
    for (ReadResult result = ReadResult::something; result != ReadResult::end;) {
        const Duration left = end - std::chrono::steady_clock::now();
        if (left <= 0ns) return fail(Code::deadline_exceeded, "the process does not end");
        result = read_some(left);
    }
    // The process may have closed its output long before its end.
    const std::optional<int> status = reap(end);
    if (!status) return fail(Code::deadline_exceeded, "the process does not end");
    std::string output = std::exchange(output_, {});
    if (*status == 0) return output;
    while (!output.empty() && output.back() == '\n') output.pop_back();
    const std::size_t at = output.find_last_of('\n');
    return fail(Code::unavailable, at == std::string::npos ? output : output.substr(at + 1));
}

std::optional<int> Child::reap(TimePoint end) {
    int status = 0;
    while (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() >= end) return std::nullopt;
        poll(nullptr, 0, 1);
    }
    pid_ = -1;
    return status;
}

void Child::stop() {
    if (pid_ <= 0) return;
    kill(pid_, SIGTERM);
    if (reap(std::chrono::steady_clock::now() + 1s)) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
}

}  // namespace weft::tool
