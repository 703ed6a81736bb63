// A child process: this process reads its output, and its end is the child's end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <weft/result.h>
#include <weft/time.h>

#include "base/unique_fd.h"

namespace weft::tool {

class Child {
  public:
    struct Options {
        std::vector<int> cpus{};   // Where it may run; empty: where this process may.
        bool with_errors = false;  // Its standard error is read, too.
    };
    // `words`: the program, looked up in PATH unless it has a slash, and its arguments.
    // Errors: RESOURCE_EXHAUSTED. A missing program ends at once, with status 127.
    static Result<Child> start(const std::vector<std::string>& words, Options options);

    Child(Child&& other) noexcept;
    Child& operator=(Child&& other) noexcept;
    ~Child() { stop(); }

    // The next line of its output, without '\n'. Errors: DEADLINE_EXCEEDED without a line within
    // `limit`, UNAVAILABLE when the output is closed.
    Result<std::string> line(Duration limit);
    // Waits for its end; returns its output. Errors: DEADLINE_EXCEEDED, UNAVAILABLE with its last
    // line when its exit status is not 0.
    Result<std::string> finish(Duration limit);
    // Sends SIGTERM, after a second SIGKILL, and reaps the process.
    void stop();

  private:
    Child(pid_t pid, base::UniqueFd from) : pid_(pid), from_(std::move(from)) {}
    enum class ReadResult : std::uint8_t { something, nothing, end };
    ReadResult read_some(Duration limit);
    // The status of its end as of wait(); nullopt: it still runs at `end`.
    std::optional<int> reap(TimePoint end);

    pid_t pid_ = -1;
    base::UniqueFd from_;
    std::string output_;  // Read, and not yet returned.
};

}  // namespace weft::tool
