// A process that we start, whose output we read and that ends when we do.
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
        int cpu = -1;              // To bind it to; -1: none.
        bool with_errors = false;  // Its standard error is read, too.
    };
    // `words`: the program, looked up in PATH unless it has a slash, and its arguments.
    // Errors: RESOURCE_EXHAUSTED. A program that is not there ends at once, with status 127.
    static Result<Child> start(const std::vector<std::string>& words, Options options);

    Child(Child&& other) noexcept;
    Child& operator=(Child&& other) noexcept;
    ~Child() { stop(); }

    // Its next line, without the end. Errors: DEADLINE_EXCEEDED when none is there within `limit`,
    // UNAVAILABLE when it closed its output.
    Result<std::string> line(Duration limit);
    // Waits for its end: all that it said. Errors: DEADLINE_EXCEEDED, UNAVAILABLE with its last
    // line when its exit status is not 0.
    Result<std::string> finish(Duration limit);
    // Asks it to end, insists after a second, reaps it.
    void stop();

  private:
    Child(pid_t pid, base::UniqueFd from) : pid_(pid), from_(std::move(from)) {}
    enum class Heard : std::uint8_t { something, nothing, end };
    Heard listen(Duration limit);
    // What wait() says of its end; nothing: it goes on at `end`.
    std::optional<int> reap(TimePoint end);

    pid_t pid_ = -1;
    base::UniqueFd from_;
    std::string said_;  // And not yet returned.
};

}  // namespace weft::tool
