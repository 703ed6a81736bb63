// The address that a client chooses of a server's addresses, over real transports: shown by the
// server that replies and by the one line of the log.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include <weft/runtime.h>

#include "api/runtime_impl.h"
#include "support/catch.h"
#include "support/test_timeout.h"

using namespace weft;
using test::test_timeout;

namespace {

constexpr MethodId server_name("test.Server/Name");

std::string unique(const std::string& name) {
    static int count = 0;
    return "weft-path-" + std::to_string(getpid()) + "-" + std::to_string(++count) + "-" + name;
}
std::string sm_uri() { return "sm://" + unique("sm"); }
std::string unix_uri() {
    return "unix://" + (std::filesystem::temp_directory_path() / unique("unix")).string();
}

// Replies with its name.
struct Server final : Service {
    explicit Server(std::string called) : name(std::move(called)) {
        REQUIRE(runtime.add(*this).ok());
    }
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(server_name, [this](Call call) { call.reply(as_bytes(name)); });
    }
    // Returns the address with its port.
    std::string listen(const std::string& uri) {
        REQUIRE(runtime.listen(uri).ok());
        return runtime.addresses().back();
    }
    const std::string name;
    Runtime runtime = Runtime::create({}).value();
};

struct Client {
    // Log lines on the choice of an address.
    std::vector<std::string> lines;
    Runtime runtime = Runtime::create(options()).value();

    RuntimeOptions options() {
        RuntimeOptions options;
        options.manual = true;
        options.log_level = LogLevel::info;
        options.log_sink = [this](LogLevel, std::string_view line) {
            if (line.find("using ") != line.npos) lines.emplace_back(line);
        };
        return options;
    }
    Result<std::string> ask(const Channel& channel) {
        bool done = false;
        Result<std::string> answer = fail(Code::internal, "");
        channel.call(server_name, {}, {}, [&](const Status& status, ByteView reply) {
            answer = status.ok() ? Result<std::string>(std::string(as_text(reply)))
                                 : Result<std::string>(status);
            done = true;
        });
        REQUIRE(runtime.turn_until([&] { return done; }, test_timeout));
        return answer;
    }
    Result<std::string> ask(const std::vector<std::string>& uris) {
        return ask(runtime.connect(uris).value());
    }
    bool has_opened(std::string_view scheme) {
        for (const auto& slot : node_of(runtime).context.endpoints()) {
            if (slot->endpoint->scheme() == scheme) return true;
        }
        return false;
    }
};

}  // namespace

TEST_CASE("a server of this host is reached by sm in any order of its addresses") {
    Server server("server");
    const std::string sm = server.listen(sm_uri()), tcp = server.listen("tcp://127.0.0.1:0"),
                      local = server.listen(unix_uri());
    for (const auto& uris : {std::vector<std::string>{sm, tcp}, {tcp, sm}, {local, tcp, sm}}) {
        Client client;
        CHECK(client.ask(uris).value() == "server");
        REQUIRE(client.lines.size() == 1);
        CHECK(client.lines[0].ends_with("using " + sm + ": the same process as " + tcp));
    }
    Client client;
    CHECK(client.ask({tcp, local}).value() == "server");
    REQUIRE(client.lines.size() == 1);
    CHECK(client.lines[0].ends_with("using " + local + ": the same process as " + tcp));
}

TEST_CASE("an sm name of another process on this host is not used for the server") {
    Server near("near"), far("far");
    const std::string sm = near.listen(sm_uri()), local = near.listen(unix_uri()),
                      tcp = far.listen("tcp://127.0.0.1:0");
    Client client;
    CHECK(client.ask({sm, local, tcp}).value() == "far");
    REQUIRE(client.lines.size() == 1);
    CHECK(client.lines[0].ends_with("using " + tcp + ": " + sm + " is another process; " + local +
                                    " is another process"));
    // No connection to the process with that name is left: a direct channel works.
    const Channel direct = client.runtime.connect(sm).value();
    CHECK(client.ask(direct).value() == "near");
}

TEST_CASE("the network is used when sm fails, and sm is not used when the network fails") {
    Server server("server");
    const std::string sm = server.listen(sm_uri()), tcp = server.listen("tcp://127.0.0.1:0"),
                      nowhere = sm_uri();
    Client client;
    CHECK(client.ask({nowhere, tcp}).value() == "server");
    REQUIRE(client.lines.size() == 1);
    CHECK(client.lines[0].find("using " + tcp + ": " + nowhere + ": ") != std::string::npos);

    const Result<std::string> answer = client.ask({sm, "tcp://127.0.0.1:1"});
    REQUIRE_FALSE(answer.ok());
    CHECK(answer.status().code() == Code::unavailable);
    CHECK(answer.status().effect() == Effect::none);
    CHECK(std::string(answer.status().text()).find("nothing shows that " + sm) !=
          std::string::npos);
    CHECK(client.ask({sm, nowhere}).value() == "server");  // Names alone need no proof.
}

TEST_CASE("a channel chooses its address again after each lost connection") {
    const std::string sm = sm_uri();
    auto first = std::make_unique<Server>("first");
    first->listen(sm);
    const std::string tcp = first->listen("tcp://127.0.0.1:0");
    Client client;
    const Channel channel = client.runtime.connect({sm, tcp}).value();
    CHECK(client.ask(channel).value() == "first");
    first.reset();
    CHECK(client.ask(channel).status().code() == Code::unavailable);

    Server second("second"), other("other");
    second.listen(tcp);
    other.listen(sm);
    CHECK(client.ask(channel).value() == "second");
    CHECK(client.lines.back().find("using " + tcp) != std::string::npos);
}

TEST_CASE("a transport is opened only when it is needed") {
    Server server("server");
    const std::string sm = server.listen(sm_uri()), tcp = server.listen("tcp://127.0.0.1:0");
    Client client;
    CHECK(client.ask({"ofi+tcp://127.0.0.1:1", "verbs://127.0.0.1:1", sm, tcp}).value() ==
          "server");
    CHECK_FALSE(client.has_opened("ofi+tcp"));
    CHECK(client.has_opened("sm"));
}

TEST_CASE("an unavailable transport proves no sm name") {
    Server server("server");
    const std::string sm = server.listen(sm_uri());
    Client client;
    const Result<std::string> answer = client.ask({sm, "verbs://127.0.0.1:1"});
    REQUIRE_FALSE(answer.ok());
    CHECK(std::string(answer.status().text()).find("nothing shows that " + sm) !=
          std::string::npos);
}

TEST_CASE("a runtime that ends while it chooses an address completes the call") {
    Server server("server");
    const std::string sm = server.listen(sm_uri()), tcp = server.listen("tcp://127.0.0.1:0");
    int cancelled = 0;
    Code code = Code::cancelled;
    const auto end = std::chrono::steady_clock::now() + test_timeout;
    // Until a call succeeds.
    for (int turns = 0; code == Code::cancelled; turns += 1 + turns / 16) {
        REQUIRE(std::chrono::steady_clock::now() < end);
        int completions = 0;
        {
            Client client;
            const Channel channel = client.runtime.connect({sm, tcp}).value();
            channel.call(server_name, {}, {}, [&](const Status& status, ByteView) {
                ++completions;
                code = status.code();
            });
            for (int i = 0; i < turns; ++i) client.runtime.turn();
        }
        REQUIRE(completions == 1);
        cancelled += code == Code::cancelled;
    }
    CHECK(code == Code::ok);
    CHECK(cancelled > 3);
}
