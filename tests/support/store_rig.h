// The storage service in a temporary directory, and clients, over the simulated network.
#pragma once

#include <fcntl.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "storage/client.h"
#include "storage/crc32c.h"
#include "storage/service.h"
#include "support/catch.h"
#include "support/sim_rig.h"

namespace weft::test {

struct TemporaryDirectory {
    TemporaryDirectory() {
        std::string pattern = std::filesystem::temp_directory_path() / "weft-test-XXXXXX";
        path = ::mkdtemp(pattern.data());
    }
    ~TemporaryDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    std::string path;
};

inline std::string read_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Bytes that differ at every position, from `seed`.
inline std::string pattern(std::size_t bytes, unsigned seed = 1) {
    std::string text(bytes, '\0');
    std::uint32_t state = seed * 2654435761u + 1;
    for (char& c : text) {
        state = state * 1664525 + 1013904223;
        c = static_cast<char>(state >> 24);
    }
    return text;
}

struct StoreRig {
    explicit StoreRig(const std::string& journal = {}) {
        std::filesystem::create_directory(root);
        server = &rig.add("server");
        client_runtime = &rig.add("client");
        store = storage::Store::open(*server, root, journal).value();
        REQUIRE(server->add(*store).ok());
    }
    ~StoreRig() { rig.runtimes.clear(); }

    storage::Client make_client() { return make_client(*client_runtime); }
    storage::Client make_client(Runtime& runtime) {
        return storage::Client(runtime, runtime.connect("sim://server").value());
    }

    // Runs `task` on the client's context to its end.
    template <class T>
    T run(Task<T> task) {
        std::optional<T> result;
        client_runtime->spawn(keep(std::move(task), result));
        REQUIRE(rig.run_until([&] { return result.has_value(); }, 10min));
        return *std::move(result);
    }
    template <class T>
    static Task<void> keep(Task<T> task, std::optional<T>& into) {
        into.emplace(co_await task);
    }

    // A file on the client's side with these bytes.
    storage::Fd source(const std::string& bytes) {
        const std::string path = files.path + "/source-" + std::to_string(sources++);
        std::ofstream(path, std::ios::binary) << bytes;
        return storage::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    }
    Result<storage::TransferResult> put(const std::string& name, const std::string& bytes) {
        storage::Client client = make_client();
        const storage::Fd fd = source(bytes);
        return run(client.put(fd.get(), "source", name, {}));
    }
    Result<std::string> get(const std::string& name) {
        storage::Client client = make_client();
        const std::string path = files.path + "/back";
        storage::Sink sink = storage::Sink::file(path).value();
        const Result<storage::TransferResult> moved = run(client.get(name, sink, {}));
        if (!moved) return moved.status();
        return read_text(path);
    }
    template <class Reply, class Request>
    Result<Reply> call(const ProtoMethod<Request, Reply>& method, const Request& request) {
        return run(call_one(make_client(), method, request));
    }
    template <class Reply, class Request>
    static Task<Result<Reply>> call_one(storage::Client client, ProtoMethod<Request, Reply> method,
                                        Request request) {
        co_return co_await ProtoCall<Reply>(client.channel(), method, request, CallOptions());
    }

    std::size_t unfinished() const {
        std::size_t count = 0;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
            count += entry.path().filename().string().ends_with(".weft-tmp");
        }
        return count;
    }

    TemporaryDirectory files;
    const std::string root = files.path + "/root";
    int sources = 0;
    std::unique_ptr<storage::Store> store;
    SimRig rig;
    Runtime* server = nullptr;
    Runtime* client_runtime = nullptr;
};

}  // namespace weft::test
