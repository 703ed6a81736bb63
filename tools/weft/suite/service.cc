#include "suite/service.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <csignal>

#include "base/unique_fd.h"
#include "na/address.h"
#include "na/socket_name.h"
#include "na/verbs_optimizations.h"
#include "perf/first_line.h"

namespace weft::tool {

namespace {

constexpr Duration start_timeout = 20s;

volatile std::sig_atomic_t suite_told_to_stop = 0;

// A port that is free now; 0: none was found.
std::uint16_t free_port() {
    for (const int family : {AF_INET6, AF_INET}) {  // A host may have no IPv6.
        const base::UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_storage any{};
        any.ss_family = static_cast<sa_family_t>(family);
        if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) != 0) continue;
        socklen_t bytes = sizeof any;
        if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&any), &bytes) != 0) continue;
        const auto name = na::SocketName::from_kernel(reinterpret_cast<sockaddr*>(&any), bytes);
        if (name) return name->port();
    }
    return 0;
}

struct ServiceWish {
    bool bare = false;
    std::string without;
};

// Validates the request of a peer. nullopt: it is invalid.
std::optional<ServiceWish> parse_serve_request(ByteView body) {
    const Json json = Json::parse(as_text(body), nullptr, false);
    if (!json.is_object()) return std::nullopt;
    const auto bare = json.find("bare");
    const auto without = json.find("without");
    if (bare == json.end() || !bare->is_boolean() || without == json.end() ||
        !without->is_string()) {
        return std::nullopt;
    }
    ServiceWish serve_request{bare->get<bool>(), without->get<std::string>()};
    if (!na::optimizations_without(serve_request.without)) return std::nullopt;
    return serve_request;
}

std::string dump(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

SuiteService::SuiteService(std::string host, SuiteHost suite_host, std::string perftest)
    : host_(std::move(host)),
      suite_host_(std::move(suite_host)),
      perftest_version_(std::move(perftest)) {}

void SuiteService::register_methods(MethodRegistrar& registrar) {
    registrar.add(suite_machine, [this](Call call) {
        Json json = describe_machine(suite_host_);
        json["perftest"] = perftest_version_.empty() ? Json(nullptr) : Json(perftest_version_);
        call.reply(as_bytes(dump(json)));
    });
    registrar.add(suite_serve, [this](Call call) { serve(std::move(call)); });
    registrar.add(suite_perftest, [this](Call call) { start_perftest(std::move(call)); });
    registrar.add(suite_stop, [this](Call call) {
        stop();
        call.reply({});
    });
}

void SuiteService::stop() {
    if (waiting_) waiting_->fail(fail(Code::aborted, "a later request replaced it"));
    waiting_.reset();
    server_.reset();
    perftest_.reset();
}

void SuiteService::serve(Call call) {
    const std::optional<ServiceWish> serve_request = parse_serve_request(call.request());
    if (!serve_request) {
        return call.fail(
            rejected(Code::invalid_argument, "the request names no server of a suite"));
    }
    stop();
    PerfOptions options;
    options.transport = "verbs";
    options.listen = na::Address{"verbs", "", host_, 0}.uri();
    options.wait = suite_host_.cpus.two() ? WaitMode::spin : WaitMode::adaptive;
    options.without = serve_request->without;
    Result<ServerProcess> server =
        ServerProcess::launch(options, {suite_host_.cpus.server}, serve_request->bare);
    if (!server) return call.fail(server.status());
    server_ = *std::move(server);
    waiting_ = std::move(call);
    start_deadline_ = std::chrono::steady_clock::now() + start_timeout;
}

bool SuiteService::tick() {
    if (!waiting_) return false;
    Result<std::string> uri = server_->uri_within(0ns);
    if (!uri && uri.status().code() == Code::deadline_exceeded &&
        std::chrono::steady_clock::now() < start_deadline_) {
        return true;
    }
    if (uri) waiting_->reply(as_bytes(*uri));
    else waiting_->fail(uri.status());
    waiting_.reset();
    return false;
}

void SuiteService::start_perftest(Call call) {
    const std::string_view text = as_text(call.request());
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::optional<Perftest> test = perftest_of(number);
    if (error != std::errc() || end != text.data() + text.size() || !test) {
        return call.fail(
            rejected(Code::invalid_argument, "the request names no program of perftest"));
    }
    if (perftest_version_.empty()) {
        return call.fail(rejected(
            Code::failed_precondition,
            "perftest is not installed on the listening side, or --perftest is missing there"));
    }
    stop();
    const std::uint16_t port = free_port();
    if (port == 0) return call.fail(fail(Code::resource_exhausted, "this host has no free port"));
    Result<Child> child = Child::start(command_of(*test, port, ""),
                                       {.cpus = {suite_host_.cpus.server}, .with_errors = true});
    if (!child) return call.fail(child.status());
    perftest_ = *std::move(child);
    call.reply(as_bytes(std::to_string(port)));
}

Result<std::string> control_uri(const std::string& uri) {
    Result<na::Address> address = na::parse_address(uri);
    if (!address) return std::move(address).status();
    if (address->scheme != "verbs" || address->host.empty()) {
        return fail(Code::invalid_argument, "the suite rdma needs verbs://HOST:PORT, not " + uri);
    }
    Result<std::string> host = to_numeric(address->host);
    if (!host) return std::move(host).status();
    return na::Address{"tcp", "", *host, address->port}.uri();
}

static Status serve_until_signal(const PerfOptions& options) {
    Result<std::string> uri = control_uri(options.listen);
    if (!uri) return std::move(uri).status();
    const std::string host = na::parse_address(*uri)->host;
    Result<SuiteHost> suite_host = find_suite_host(host);
    if (!suite_host) return std::move(suite_host).status();
    std::signal(SIGTERM, [](int) { suite_told_to_stop = 1; });
    std::signal(SIGINT, [](int) { suite_told_to_stop = 1; });
    SuiteService service(host, *std::move(suite_host), options.perftest ? perftest_version() : "");
    RuntimeOptions with;
    with.manual = true;
    with.wait = WaitMode::block;
    Result<Runtime> runtime = Runtime::create(with);
    if (!runtime) return std::move(runtime).status();
    if (Status status = runtime->serve(service, *uri); !status.ok()) return status;
    const std::uint16_t port = na::parse_address(runtime->addresses().front())->port;
    const std::string shown = na::Address{"verbs", "", host, port}.uri();
    if (Status status = print_listening(shown); !status.ok()) return status;
    while (!suite_told_to_stop) {
        const Duration pause = service.tick() ? 10ms : 100ms;
        runtime->turn_until([&] { return suite_told_to_stop != 0; }, pause);
    }
    return {};
}

Status serve_suite(const PerfOptions& options) {
    Status status = serve_until_signal(options);
    if (!status.ok()) print_failed(status);
    return status;
}

}  // namespace weft::tool
