// The measuring end's client of the listening end. Each request has its own connection, so that
// none exists during a measurement.
#pragma once

#include <string>

#include <weft/result.h>

#include "cli/invocation.h"
#include "perf/child.h"
#include "suite/perftest.h"

namespace weft::tool {

class SuiteClient {
  public:
    // `uri`: verbs://HOST:PORT. Errors: INVALID_ARGUMENT.
    static Result<SuiteClient> of(const std::string& uri);

    // The numeric address of the listening end.
    const std::string& host() const { return host_; }
    // The reply of its describe_machine(). Errors: DATA_LOSS; the call's.
    Result<Json> machine() const;
    // Starts a server there; returns its URI. Errors: the call's.
    Result<std::string> serve(bool bare, const std::string& without) const;
    // Starts the server of `test` there and runs the client here; returns the figure. Errors: the
    // call's; UNAVAILABLE with the program's output.
    Result<double> run(Perftest test) const;
    // Ends the started server. Errors: the call's.
    Status stop() const;

  private:
    // With one server.
    Result<double> run_once(Perftest test) const;

    SuiteClient(std::string host, std::string uri) : host_(std::move(host)), uri_(std::move(uri)) {}

    std::string host_;
    std::string uri_;  // tcp://HOST:PORT.
};

}  // namespace weft::tool
