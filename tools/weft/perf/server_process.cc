#include "perf/server_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>

#include "base/unique_fd.h"
#include "cli/own_uri.h"

namespace weft::tool {

namespace {

[[noreturn]] void become_server(int out, pid_t parent, const std::vector<std::string>& words,
                                int cpu) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);  // It died before the line above.
    bind_to_cpu(cpu);
    dup2(out, STDOUT_FILENO);
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv("/proc/self/exe", argv.data());
    _exit(127);
}

// One line, without its end; empty when none comes within `limit`.
std::string read_line(int fd, Duration limit) {
    const TimePoint end = std::chrono::steady_clock::now() + limit;
    std::string line;
    while (true) {
        const Duration left = end - std::chrono::steady_clock::now();
        pollfd watched{fd, POLLIN, 0};
        if (left <= 0ns || poll(&watched, 1, static_cast<int>(left / 1ms) + 1) < 0) return "";
        char byte = 0;
        if (watched.revents == 0) continue;
        if (read(fd, &byte, 1) != 1) return "";
        if (byte == '\n') return line;
        line += byte;
    }
}

// Of "failed CODE TEXT".
Status to_status(std::string_view line) {
    line.remove_prefix(std::min(line.size(), std::string_view("failed ").size()));
    unsigned code = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), code);
    if (error != std::errc() || code == 0 || code > code_max) {
        return fail(Code::internal, "the server process did not start");
    }
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
    if (line.starts_with(' ')) line.remove_prefix(1);
    return fail(static_cast<Code>(code), std::string(line));
}

}  // namespace

Result<ServerProcess> ServerProcess::start(const PerfOptions& options, const CpuPair& cpus,
                                           bool bare) {
    const std::string listen = own_uri(options.transport, "perf");
    if (listen.empty()) {
        return fail(Code::invalid_argument,
                    "transport '" + options.transport +
                        "' has no loopback address to guess: run `weft perf serve --listen URI` "
                        "there and name it with --server URI");
    }
    std::vector<std::string> words = {"weft", "perf", "serve", "--listen", listen};
    if (options.wait != WaitMode::adaptive) {
        words.push_back(std::string("--") + name_of(options.wait));
    }
    if (!options.without.empty()) words.insert(words.end(), {"--without", options.without});
    if (bare) words.push_back("--bare");
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return fail(Code::resource_exhausted, "no file descriptor left (ulimit -n)");
    }
    const base::UniqueFd from(ends[0]);
    base::UniqueFd to(ends[1]);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) return fail(Code::resource_exhausted, "no process can be started (fork)");
    if (pid == 0) become_server(to.get(), parent, words, cpus.server);
    to.reset();
    ServerProcess process(pid, "");
    const std::string line = read_line(from.get(), 5s);
    constexpr std::string_view good = "listening ";
    if (!line.starts_with(good)) return to_status(line);
    process.uri_ = line.substr(good.size());
    return process;
}

void ServerProcess::stop() {
    if (pid_ <= 0) return;
    const pid_t pid = std::exchange(pid_, -1);
    kill(pid, SIGTERM);
    for (int waited_ms = 0; waited_ms < 1000; ++waited_ms) {
        if (waitpid(pid, nullptr, WNOHANG) != 0) return;
        poll(nullptr, 0, 1);
    }
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
}

}  // namespace weft::tool
