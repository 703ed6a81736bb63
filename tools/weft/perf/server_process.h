// The other end of a measurement: this same program in a process of its own.
#pragma once

#include <sys/types.h>

#include <string>

#include <weft/result.h>

#include "perf/options.h"

namespace weft::tool {

// Dies with us, and is reaped by the destructor.
class ServerProcess {
  public:
    // Starts `weft perf serve` on the server's cpu and waits until it listens.
    // Errors: what the server could not do; INVALID_ARGUMENT (a transport that needs --server).
    static Result<ServerProcess> start(const PerfOptions& options, const CpuPair& cpus, bool bare);

    ServerProcess(ServerProcess&& other) noexcept : pid_(other.pid_), uri_(std::move(other.uri_)) {
        other.pid_ = -1;
    }
    ServerProcess& operator=(ServerProcess&&) = delete;
    ~ServerProcess() { stop(); }

    // Asks it to end, insists after a second, reaps it.
    void stop();
    const std::string& uri() const { return uri_; }

  private:
    ServerProcess(pid_t pid, std::string uri) : pid_(pid), uri_(std::move(uri)) {}

    pid_t pid_ = -1;
    std::string uri_;
};

// Runs `weft perf serve` until SIGTERM. Its first line of output is what start() waits for:
// "listening URI" or "failed CODE TEXT".
Status serve_perf(const PerfOptions& options);

}  // namespace weft::tool
