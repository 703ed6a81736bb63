// The listening end of a suite: starts, one at a time, the servers that the other end measures.
//
// It uses tcp, so that it neither disturbs a measurement nor has an RDMA device open when it forks.
// A peer that reaches it can start the servers listed here, and nothing else.
#pragma once

#include <optional>
#include <string>

#include <weft/runtime.h>

#include "perf/options.h"
#include "perf/server_process.h"
#include "suite/machine.h"
#include "suite/perftest.h"

namespace weft::tool {

// An empty request; the reply is describe_machine() of that host, with "perftest": its version,
// null if it may not be started.
inline constexpr MethodId suite_machine("weft.Suite/Machine");
// {"bare":false,"without":"lists"}; the reply is the URI of a server with these options.
inline constexpr MethodId suite_serve("weft.Suite/Serve");
// A decimal number of a Perftest; the reply is the port at which its server listens, or soon will.
inline constexpr MethodId suite_perftest("weft.Suite/Perftest");
// Ends the started server.
inline constexpr MethodId suite_stop("weft.Suite/Stop");

class SuiteService final : public Service {
  public:
    // `host`: an address of this machine, numeric. `perftest`: its version; empty: not used.
    SuiteService(std::string host, SuiteHost suite_host, std::string perftest);
    void register_methods(MethodRegistrar& registrar) override;

    // Replies to the call that waits for a server, once that listens. True: the call still waits.
    bool tick();

  private:
    void serve(Call call);
    void start_perftest(Call call);
    void stop();

    const std::string host_;
    const SuiteHost suite_host_;
    const std::string perftest_version_;
    std::optional<ServerProcess> server_;
    std::optional<Child> perftest_;
    std::optional<Call> waiting_;
    TimePoint start_deadline_;
};

// Serves until SIGTERM or SIGINT at the host and port of `options.listen`, a verbs:// URI. Prints
// "listening URI" or "failed CODE TEXT" first, as serve_perf() does.
Status serve_suite(const PerfOptions& options);

// The tcp address of the listening end, from the verbs:// URI on the command line.
// Errors: INVALID_ARGUMENT.
Result<std::string> control_uri(const std::string& uri);

}  // namespace weft::tool
