// `weft perf --suite rdma` without a device: the parsing of other programs' output, and the
// listening side's handling of requests that no weft would send. The lab runs the whole suite
// (docs/softroce.md).
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "perf/metrics.h"
#include "suite/machine.h"
#include "suite/perftest.h"
#include "suite/service.h"
#include "suite/suite_client.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::tool;

using Numbers = std::vector<int>;

TEST_CASE("suite: a kernel list of processors is parsed") {
    CHECK(parse_cpu_list("") == Numbers{});
    CHECK(parse_cpu_list("3") == Numbers{3});
    CHECK(parse_cpu_list("0-3,8") == Numbers{0, 1, 2, 3, 8});
    for (const char* wrong :
         {"x", "-1", "3-1", "0-", "1;2", "0-4000000000", "99999999999", "0 1"}) {
        INFO(wrong);
        CHECK(parse_cpu_list(wrong).empty());
    }
}

TEST_CASE("suite: a figure of perftest is read from the row of the requested size") {
    const std::string latency =
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n"
        " 64      1000          1.80           9.10         2.00               2.10   0.20 2.90 "
        "8.0\n";
    CHECK(figure_in(Perftest::send_latency, latency) == 4000.0);
    const std::string bandwidth =
        " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
        " 1048576    20000            0.00               11500.25             0.011500\n";
    CHECK(figure_in(Perftest::read_1m, bandwidth) == 11500.25);
    CHECK_FALSE(figure_in(Perftest::read_64k, bandwidth));
    for (const char* wrong : {"", "64\n", " 64 1000 1.8 9.1 0 2.1\n", " 64 1000 a b c d\n",
                              "Unable to init the socket connection\n"}) {
        INFO(wrong);
        CHECK_FALSE(figure_in(Perftest::send_latency, wrong));
    }
}

TEST_CASE("suite: perftest runs with the same depth as weft") {
    const auto depth_of = [](Perftest test) {
        const std::vector<std::string> words = command_of(test, 7, "10.0.0.1");
        CHECK(words.back() == "10.0.0.1");
        const auto at = std::ranges::find(words, "-t");
        return at == words.end() ? "" : *(at + 1);
    };
    CHECK(depth_of(Perftest::send_latency).empty());
    CHECK(depth_of(Perftest::read_64k) == std::to_string(small_transfers));
    CHECK(depth_of(Perftest::write_1m) == std::to_string(large_transfers));
}

TEST_CASE("suite: the control address is tcp at the host and port of the verbs address") {
    CHECK(control_uri("verbs://127.0.0.1:7").value() == "tcp://127.0.0.1:7");
    for (const char* wrong : {"", "tcp://127.0.0.1:7", "sm://x", "verbs://", "verbs://:7"}) {
        INFO(wrong);
        CHECK(control_uri(wrong).status().code() == Code::invalid_argument);
    }
}

namespace {

// The listening side without a device, and a client of it.
struct Listening {
    explicit Listening(const std::string& perftest = "")
        : service("127.0.0.1", SuiteHost{}, perftest) {
        Result<Runtime> runtime = Runtime::create();
        REQUIRE(runtime);
        server = *std::move(runtime);
        REQUIRE(server->serve(service, "tcp://127.0.0.1:0").ok());
    }
    Result<std::string> call_service(const MethodId& method, std::string_view body) {
        PerfOptions options;
        options.wait = WaitMode::block;
        auto client = PerfClient::connect(options, server->addresses().front());
        if (!client) return std::move(client).status();
        return (*client)->call(method, as_bytes(body));
    }
    SuiteService service;
    std::optional<Runtime> server;
};

// perftest programs replaced by scripts: the side with an address runs `client`; the other side
// appends a line to the file "servers" and ends, like a server that met a client too early.
class Scripts {
  public:
    explicit Scripts(const std::string& client) {
        char pattern[] = "/tmp/weft-suite-XXXXXX";
        REQUIRE(::mkdtemp(pattern));
        folder_ = pattern;
        for (const char* name : {"servers", "clients"}) std::ofstream(folder_ / name).close();
        std::ofstream(folder_ / "ib_send_lat")
            << "#!/bin/sh\nfor last; do :; done\ncd " << folder_.string() << "\ncase $last in *.*) "
            << client << ";; *) echo here >>servers;; esac\n";
        std::filesystem::permissions(folder_ / "ib_send_lat", std::filesystem::perms::owner_all);
        path_ = ::getenv("PATH");
        ::setenv("PATH", (folder_.string() + ":" + path_).c_str(), 1);
    }
    ~Scripts() {
        ::setenv("PATH", path_.c_str(), 1);
        std::filesystem::remove_all(folder_);
    }
    Scripts(const Scripts&) = delete;
    Scripts& operator=(const Scripts&) = delete;

    Result<double> run() {
        Listening end("6.06");
        std::string uri = end.server->addresses().front();
        uri.replace(0, uri.find(':'), "verbs");
        return SuiteClient::of(uri).value().run(Perftest::send_latency);
    }
    std::size_t servers() const {
        std::ifstream lines(folder_ / "servers");
        std::size_t count = 0;
        for (std::string line; std::getline(lines, line);) ++count;
        return count;
    }

  private:
    std::filesystem::path folder_;
    std::string path_;
};

}  // namespace

TEST_CASE("suite: the listening end refuses requests that are not a suite's, and keeps serving") {
    Listening end;
    for (const char* wrong :
         {"", "{", "[]", "null", "7", "{}", R"({"bare":1,"without":""})", R"({"bare":false})",
          R"({"bare":false,"without":7})", R"({"bare":false,"without":"nothing-of-the-kind"})",
          R"({"bare":false,"without":"lists; reboot"})", "\xff\xfe"}) {
        INFO(wrong);
        CHECK(end.call_service(suite_serve, wrong).status().code() == Code::invalid_argument);
    }
    const std::string deep(100'000, '[');
    CHECK(end.call_service(suite_serve, deep).status().code() == Code::invalid_argument);
    for (const char* wrong : {"", "x", "-1", "5", "99999999999999999999999", "0 ", "0;ls"}) {
        INFO(wrong);
        CHECK(end.call_service(suite_perftest, wrong).status().code() == Code::invalid_argument);
    }
    CHECK(end.call_service(suite_perftest, "0").status().code() == Code::failed_precondition);
    CHECK(end.call_service(suite_stop, "whatever"));
    const Json machine = Json::parse(end.call_service(suite_machine, "").value(), nullptr, false);
    REQUIRE(machine.is_object());
    CHECK(machine["perftest"].is_null());
    CHECK(machine["device"].is_null());
    CHECK(machine["kernel"].is_string());
}

TEST_CASE("suite: another perftest server starts when the first one can't be reached") {
    Scripts scripts(
        "if [ $(wc -l <servers) -lt 2 ]; then echo 'Unable to init the socket connection'; exit 1; "
        "fi; echo ' 64 1000 1.80 9.10 2.00 2.10 0.20 2.90 8.0'");
    Result<double> figure = scripts.run();
    REQUIRE(figure);
    CHECK(*figure == 4000.0);
    CHECK(scripts.servers() >= 2);
}

TEST_CASE("suite: an error is reported when perftest prints no figures with three servers") {
    // Each client waits for its server; that server ends before the next one starts.
    Scripts scripts(
        "echo here >>clients; until [ $(wc -l <servers) -ge $(wc -l <clients) ]; do sleep 0.01; "
        "done; echo nothing");
    const Status status = scripts.run().status();
    CHECK(status.code() == Code::unavailable);
    CHECK(status.text().find("no figures") != std::string_view::npos);
    CHECK(scripts.servers() == 3);
}
