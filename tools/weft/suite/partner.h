// The other end of a suite, as the measuring end has it: each request over a connection of its own,
// so that nothing of it goes on while something is measured.
#pragma once

#include <string>

#include <weft/result.h>

#include "cli/invocation.h"
#include "perf/child.h"
#include "suite/perftest.h"

namespace weft::tool {

class Partner {
  public:
    // `uri`: verbs://HOST:PORT. Errors: INVALID_ARGUMENT.
    static Result<Partner> of(const std::string& uri);

    // An address of it, numeric.
    const std::string& host() const { return host_; }
    // What its describe_machine() says. Errors: DATA_LOSS; the call's.
    Result<Json> machine() const;
    // Has it start a server; its URI. Errors: the call's.
    Result<std::string> serve(bool bare, const std::string& without) const;
    // Has it start its end of `test` and runs ours: the figure. Errors: the call's; UNAVAILABLE
    // with what the program said.
    Result<double> run(Perftest test) const;
    // Ends what it started. Errors: the call's.
    Status stop() const;

  private:
    // With one server.
    Result<double> run_once(Perftest test) const;

    Partner(std::string host, std::string uri) : host_(std::move(host)), uri_(std::move(uri)) {}

    std::string host_;
    std::string uri_;  // Of tcp.
};

}  // namespace weft::tool
