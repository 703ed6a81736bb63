// A live server under attack.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "api/runtime_impl.h"
#include "support/bare_peer.h"
#include "support/live_server.h"
#include "support/raw_socket.h"

namespace weft::test {

inline const std::string here = "/tmp/weft-peer-" + std::to_string(::getpid());

inline std::vector<std::string> all_uris() {
    std::vector<std::string> uris = {"sm://peer-" + std::to_string(::getpid()), "tcp://127.0.0.1:0",
                                     "unix://" + here};
    const api::RuntimeParts parts = api::production_parts();
    if (parts.providers->find("ofi+tcp")) uris.push_back("ofi+tcp://127.0.0.1:0");
    return uris;
}

inline std::string scheme_of(const std::string& uri) { return uri.substr(0, uri.find(':')); }
inline bool is_stream(const std::string& uri) {
    return uri.starts_with("tcp") || uri.starts_with("unix");
}

// A live server, an honest client, and the check of both after an attack.
class Storm {
  public:
    explicit Storm(std::size_t peers_max = 4096) : server(all_uris(), peers_max) {
        honest = std::make_unique<HonestClient>(server.addresses());
        REQUIRE(honest->is_served(64));
        before = server.usage();
    }
    ~Storm() {  // A killed server leaves its socket file.
        std::filesystem::remove(here);
        std::filesystem::remove(here + ".lock");
    }
    Storm(const Storm&) = delete;
    Storm& operator=(const Storm&) = delete;

    na::Provider& provider(const std::string& uri) {
        return **parts_.providers->find(scheme_of(uri));
    }

    // The honest client was served during the attack, and all resources are returned.
    void check_survived() {
        REQUIRE(honest->is_served(64));
        wait_for("descriptors",
                 [&](const Usage& now) { return now.descriptors <= before.descriptors; });
        check_served();
    }
    // The same without descriptors.
    void check_served() {
        REQUIRE(honest->is_served(64));
        wait_for("threads", [&](const Usage& now) { return now.threads <= before.threads; });
        check_memory();
        CHECK(ask(LiveService::vault) == "intact");
        CHECK(honest->wrong() == "");
    }

    // Memory that an allocator retains; a sanitizer's quarantine is larger.
    void check_memory() {
        if (slowness < 10) CHECK(server.usage().resident_kib < before.resident_kib + kept_kib());
    }

    // libfabric keeps the buffers that a flood made it allocate: up to 150 MiB were measured.
    std::size_t kept_kib() const {
        const std::vector<std::string>& uris = server.addresses();
        const bool fabric = std::any_of(uris.begin(), uris.end(), [](const std::string& uri) {
            return uri.starts_with("ofi");
        });
        return fabric ? 320 << 10 : 96 << 10;
    }

    std::string ask(const MethodId& method) {
        Runtime runtime = Runtime::create({.manual = true}).value();
        std::string answer;
        bool done = false;
        Channel channel = runtime.connect(server.addresses().front()).value();
        channel.call(method, {}, {.timeout = test_timeout},
                     [&](const Status& status, ByteView reply) {
                         done = true;
                         answer = status.ok() ? std::string(as_text(reply)) : status.to_string();
                     });
        REQUIRE(runtime.turn_until([&] { return done; }, 2 * test_timeout));
        return answer;
    }

    LiveServer server;
    std::unique_ptr<HonestClient> honest;
    Usage before;

  private:
    template <class Good>
    void wait_for(const char* what, Good&& good) {
        INFO(what);
        const TimePoint end = BarePeer::now() + test_timeout;
        while (!good(server.usage())) {
            REQUIRE(BarePeer::now() < end);
            REQUIRE(honest->is_served(1));
        }
    }
    const api::RuntimeParts parts_ = api::production_parts();
};

}  // namespace weft::test
