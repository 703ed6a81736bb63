#include "suite/partner.h"

#include <poll.h>

#include <charconv>

#include "na/address.h"
#include "perf/metrics.h"
#include "suite/service.h"

namespace weft::tool {

namespace {

constexpr Duration perftest_patience = 30s;
constexpr int servers = 3, tries = 20;
constexpr int between_tries_ms = 100;

Result<std::string> ask(const std::string& uri, const MethodId& method, std::string_view body) {
    PerfOptions options;
    options.wait = WaitMode::block;
    Result<std::unique_ptr<PerfClient>> client = PerfClient::connect(options, uri);
    if (!client) return std::move(client).status();
    return (*client)->call(method, as_bytes(body));
}

}  // namespace

Result<Partner> Partner::of(const std::string& uri) {
    Result<std::string> control = control_uri(uri);
    if (!control) return std::move(control).status();
    return Partner(na::parse_address(*control)->host, *control);
}

Result<Json> Partner::machine() const {
    Result<std::string> reply = ask(uri_, suite_machine, "");
    if (!reply) return std::move(reply).status();
    Json json = Json::parse(*reply, nullptr, false);
    if (!json.is_object()) return fail(Code::data_loss, "the other end describes itself wrongly");
    return json;
}

Result<std::string> Partner::serve(bool bare, const std::string& without) const {
    return ask(uri_, suite_serve, Json{{"bare", bare}, {"without", without}}.dump());
}

Result<double> Partner::run(Perftest test) const {
    Result<double> figure = run_once(test);
    // A server of perftest's that meets a client before it is ready ends, and no later client finds
    // it.
    for (int i = 1; i < servers && !figure && figure.status().code() == Code::unavailable; ++i) {
        figure = run_once(test);
    }
    return figure;
}

Result<double> Partner::run_once(Perftest test) const {
    const auto number = static_cast<std::uint64_t>(test);
    Result<std::string> reply = ask(uri_, suite_perftest, std::to_string(number));
    if (!reply) return std::move(reply).status();
    std::uint16_t port = 0;
    const auto [end, error] = std::from_chars(reply->data(), reply->data() + reply->size(), port);
    if (error != std::errc() || end != reply->data() + reply->size() || port == 0) {
        return fail(Code::data_loss, "the other end answers with no port");
    }
    Status last;
    // Nothing tells when the other program waits, so ours tries until it does.
    for (int i = 0; i < tries; ++i) {
        Result<Child> child = Child::start(words_of(test, port, host_), {.with_errors = true});
        if (!child) return std::move(child).status();
        Result<std::string> output = child->finish(perftest_patience);
        if (output) {
            if (const auto figure = figure_in(test, *output)) return *figure;
            last = fail(Code::unavailable, "it prints no figures");
            break;  // Its server is done with it.
        } else {
            last = std::move(output).status();
            if (last.code() == Code::deadline_exceeded) break;
        }
        ::poll(nullptr, 0, between_tries_ms);
    }
    return std::move(last).in(name_of(test));
}

Status Partner::stop() const { return ask(uri_, suite_stop, "").status(); }

}  // namespace weft::tool
