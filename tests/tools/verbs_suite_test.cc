// `weft perf --suite rdma` where no device is needed: what is read of others, and what the
// listening end makes of requests that no weft would send. The whole runs in the lab
// (docs/softroce.md).
#include <algorithm>

#include "perf/metrics.h"
#include "suite/machine.h"
#include "suite/perftest.h"
#include "suite/service.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::tool;

using Numbers = std::vector<int>;

TEST_CASE("suite: a list of processors as the kernel writes it") {
    CHECK(parse_cpu_list("") == Numbers{});
    CHECK(parse_cpu_list("3") == Numbers{3});
    CHECK(parse_cpu_list("0-3,8") == Numbers{0, 1, 2, 3, 8});
    for (const char* wrong :
         {"x", "-1", "3-1", "0-", "1;2", "0-4000000000", "99999999999", "0 1"}) {
        INFO(wrong);
        CHECK(parse_cpu_list(wrong).empty());
    }
}

TEST_CASE("suite: a figure of perftest's is the row of the size that was asked for") {
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

TEST_CASE("suite: perftest has as much under way as weft beside it") {
    const auto depth_of = [](Perftest test) {
        const std::vector<std::string> words = words_of(test, 7, "10.0.0.1");
        CHECK(words.back() == "10.0.0.1");
        const auto at = std::ranges::find(words, "-t");
        return at == words.end() ? "" : *(at + 1);
    };
    CHECK(depth_of(Perftest::send_latency).empty());
    CHECK(depth_of(Perftest::read_64k) == "16");
    CHECK(depth_of(Perftest::write_1m) == "4");
}

TEST_CASE("suite: it is reached over tcp at the host and port of its verbs address") {
    CHECK(control_uri("verbs://127.0.0.1:7").value() == "tcp://127.0.0.1:7");
    for (const char* wrong : {"", "tcp://127.0.0.1:7", "sm://x", "verbs://", "verbs://:7"}) {
        INFO(wrong);
        CHECK(control_uri(wrong).status().code() == Code::invalid_argument);
    }
}

namespace {

// The listening end without a device, and one who asks it.
struct Listening {
    Listening() {
        Result<Runtime> runtime = Runtime::create();
        REQUIRE(runtime);
        server = *std::move(runtime);
        REQUIRE(server->serve(service, "tcp://127.0.0.1:0").ok());
    }
    Result<std::string> ask(const MethodId& method, std::string_view body) {
        PerfOptions options;
        options.wait = WaitMode::block;
        auto client = PerfClient::connect(options, server->addresses().front());
        if (!client) return std::move(client).status();
        return (*client)->call(method, as_bytes(body));
    }
    SuiteService service{"127.0.0.1", Seat{}, ""};
    std::optional<Runtime> server;
};

}  // namespace

TEST_CASE("suite: the listening end refuses what is no request of a suite, and goes on") {
    Listening end;
    for (const char* wrong :
         {"", "{", "[]", "null", "7", "{}", R"({"bare":1,"without":""})", R"({"bare":false})",
          R"({"bare":false,"without":7})", R"({"bare":false,"without":"nothing-of-the-kind"})",
          R"({"bare":false,"without":"lists; reboot"})", "\xff\xfe"}) {
        INFO(wrong);
        CHECK(end.ask(suite_serve, wrong).status().code() == Code::invalid_argument);
    }
    const std::string deep(100'000, '[');
    CHECK(end.ask(suite_serve, deep).status().code() == Code::invalid_argument);
    for (const char* wrong : {"", "x", "-1", "5", "99999999999999999999999", "0 ", "0;ls"}) {
        INFO(wrong);
        CHECK(end.ask(suite_perftest, wrong).status().code() == Code::invalid_argument);
    }
    CHECK(end.ask(suite_perftest, "0").status().code() == Code::failed_precondition);
    CHECK(end.ask(suite_stop, "whatever"));
    const Json machine = Json::parse(end.ask(suite_machine, "").value(), nullptr, false);
    REQUIRE(machine.is_object());
    CHECK(machine["perftest"].is_null());
    CHECK(machine["device"].is_null());
    CHECK(machine["kernel"].is_string());
}
