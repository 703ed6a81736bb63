#include "suite/suite_client.h"

#include <poll.h>

#include <charconv>

#include "na/address.h"
#include "perf/metrics.h"
#include "suite/service.h"

namespace weft::tool {

namespace {

constexpr Duration perftest_start_timeout = 30s;
constexpr int servers = 3, tries = 20;
constexpr int between_tries_ms = 100;

Result<std::string> call_service(const std::string& uri, const MethodId& method,
                                 std::string_view body) {
    PerfOptions options;
    options.wait = WaitMode::block;
    Result<std::unique_ptr<PerfClient>> client = PerfClient::connect(options, uri);
    if (!client) return std::move(client).status();
    return (*client)->call(method, as_bytes(body));
}

}  // namespace

Result<SuiteClient> SuiteClient::of(const std::string& uri) {
    Result<std::string> control = control_uri(uri);
    if (!control) return std::move(control).status();
    return SuiteClient(na::parse_address(*control)->host, *control);
}

Result<Json> SuiteClient::machine() const {
    Result<std::string> reply = call_service(uri_, suite_machine, "");
    if (!reply) return std::move(reply).status();
    Json json = Json::parse(*reply, nullptr, false);
    if (!json.is_object())
        return fail(Code::data_loss,
                    "the listening host sent a malformed description of its machine");
    return json;
}

Result<std::string> SuiteClient::serve(bool bare, const std::string& without) const {
    return call_service(uri_, suite_serve, Json{{"bare", bare}, {"without", without}}.dump());
}

Result<double> SuiteClient::run(Perftest test) const {
    Result<double> figure = run_once(test);
    // A server of perftest ends when a client connects before it is ready, and later clients fail.
    // Therefore another server is started.
    for (int i = 1; i < servers && !figure && figure.status().code() == Code::unavailable; ++i) {
        figure = run_once(test);
    }
    return figure;
}

Result<double> SuiteClient::run_once(Perftest test) const {
    const auto number = static_cast<std::uint64_t>(test);
    Result<std::string> reply = call_service(uri_, suite_perftest, std::to_string(number));
    if (!reply) return std::move(reply).status();
    std::uint16_t port = 0;
    const auto [end, error] = std::from_chars(reply->data(), reply->data() + reply->size(), port);
    if (error != std::errc() || end != reply->data() + reply->size() || port == 0) {
        return fail(Code::data_loss, "the listening host sent an invalid perftest port");
    }
    Status last;
    // No signal shows when the perftest server listens, so the client is retried until then.
    for (int i = 0; i < tries; ++i) {
        Result<Child> child = Child::start(command_of(test, port, host_), {.with_errors = true});
        if (!child) return std::move(child).status();
        Result<std::string> output = child->finish(perftest_start_timeout);
        if (output) {
            if (const auto figure = figure_in(test, *output)) return *figure;
            last = fail(Code::unavailable, "the client printed no figures");
            break;  // The server of this perftest client has ended, too.
        } else {
            last = std::move(output).status();
            if (last.code() == Code::deadline_exceeded) break;
        }
        ::poll(nullptr, 0, between_tries_ms);
    }
    return std::move(last).in(name_of(test));
}

Status SuiteClient::stop() const { return call_service(uri_, suite_stop, "").status(); }

}  // namespace weft::tool
