// The server of a measurement: this program in a separate process.
#pragma once

#include <string>
#include <vector>

#include <weft/result.h>

#include "perf/child.h"
#include "perf/options.h"

namespace weft::tool {

class ServerProcess {
  public:
    // Starts `weft perf serve` and waits until it listens at `options.listen`, or, if that is
    // empty, at an address of its own. It may run on `cpus`; empty: where this process may.
    // Errors: the server's failure; INVALID_ARGUMENT (a transport that needs --server).
    static Result<ServerProcess> start(const PerfOptions& options, std::vector<int> cpus,
                                       bool bare);
    // The same without waiting; uri_within() returns the result.
    static Result<ServerProcess> launch(const PerfOptions& options, std::vector<int> cpus,
                                        bool bare);

    // Errors: DEADLINE_EXCEEDED while the server does not listen yet; the server's failure.
    Result<std::string> uri_within(Duration limit);
    const std::string& uri() const { return uri_; }

  private:
    explicit ServerProcess(Child child) : child_(std::move(child)) {}

    Child child_;
    std::string uri_;
};

// Runs `weft perf serve` until SIGTERM. Its first line of output (first_line.h) is what start()
// waits for.
Status serve_perf(const PerfOptions& options);

}  // namespace weft::tool
