// The listening end of a suite: starts, one at a time, the servers that the other end measures.
//
// It speaks tcp, so that it neither takes part in what is measured nor has an RDMA device open when
// it forks. Whoever reaches it can have it start what is listed here, and nothing else.
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
// null where it may not be started.
inline constexpr MethodId suite_machine("weft.Suite/Machine");
// {"bare":false,"without":"lists"}; the reply is the URI of a server like that.
inline constexpr MethodId suite_serve("weft.Suite/Serve");
// A decimal number of a Perftest; the reply is the port that its server waits at, or soon will.
inline constexpr MethodId suite_perftest("weft.Suite/Perftest");
// Ends what was started.
inline constexpr MethodId suite_stop("weft.Suite/Stop");

class SuiteService final : public Service {
  public:
    // `host`: an address of this machine, numeric. `perftest`: its version; empty: it stays out.
    SuiteService(std::string host, Seat seat, std::string perftest);
    void register_methods(MethodRegistrar& registrar) override;

    // Answers who waits for a server, when it listens. True: somebody still waits.
    bool tick();

  private:
    void serve(Call call);
    void start_perftest(Call call);
    void stop();

    const std::string host_;
    const Seat seat_;
    const std::string perftest_version_;
    std::optional<ServerProcess> server_;
    std::optional<Child> perftest_;
    std::optional<Call> waiting_;
    TimePoint patience_ends_;
};

// Serves until SIGTERM or SIGINT at the host and port of `options.listen`, a verbs:// URI. Prints
// "listening URI" or "failed CODE TEXT" first, as serve_perf() does.
Status serve_suite(const PerfOptions& options);

// The tcp address of the listening end, of the verbs:// URI that people type.
// Errors: INVALID_ARGUMENT.
Result<std::string> control_uri(const std::string& uri);

}  // namespace weft::tool
