// server URI: keeps keys and values, each key on one context, until SIGTERM. WEFT_CONTEXTS=n sets
// the number of contexts; the default is one for each cpu.
#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <vector>

#include <weft/runtime.h>

#include "key.h"
#include "kv.weft.h"

using namespace weft;

// Only its context touches a shard, so it has no lock, and no cache line with another one.
struct alignas(128) Shard {
    std::map<std::string, std::string> values;
};

// One object for all contexts: each handler runs on the context to which its request came.
struct Kv final : demo::KvService {
    explicit Kv(const Runtime& of) : runtime(of), shards(of.contexts()) {}

    // Clients that call channel.by(hash_of(key)) come straight to the context of the key, where
    // submit() stays on the thread.
    ContextRef home_of(const std::string& key) const {
        return runtime.context(place(hash_of(key), runtime.contexts()));
    }

    Task<Status> Put(Call&, const demo::Pair& in, demo::Done&) override {
        const ContextRef home = home_of(in.key());
        const auto put = [&] { shards[home.index()].values[in.key()] = in.value(); };
        co_await home.submit(put);
        co_return Status();
    }

    Task<Status> Get(Call&, const demo::Key& in, demo::Pair& out) override {
        const ContextRef home = home_of(in.text());
        const auto get = [&]() -> std::optional<std::string> {
            const auto& values = shards[home.index()].values;
            const auto found = values.find(in.text());
            if (found == values.end()) return std::nullopt;
            return found->second;
        };
        const std::optional<std::string> value = co_await home.submit(get);
        if (!value) co_return rejected(Code::not_found, "there is no such key");
        out.set_key(in.text());
        out.set_value(*value);
        co_return Status();
    }

    Task<Status> Scan(Call&, const demo::Key& in, demo::Pairs& out) override {
        using Found = std::vector<std::pair<std::string, std::string>>;
        const auto scan = [&](unsigned k) {
            Found found;
            const auto& values = shards[k].values;
            auto at = values.lower_bound(in.text());
            for (; at != values.end() && at->first.starts_with(in.text()); ++at)
                found.push_back(*at);
            return found;
        };
        Found all;
        for (Found& found : co_await runtime.on_all(scan))
            all.insert(all.end(), found.begin(), found.end());
        std::ranges::sort(all);
        for (auto& [key, value] : all) {
            demo::Pair& pair = *out.add_pairs();
            pair.set_key(std::move(key));
            pair.set_value(std::move(value));
        }
        co_return Status();
    }

    const Runtime& runtime;
    std::vector<Shard> shards;
};

int main(int argc, char** argv) try {
    if (argc != 2) return std::cerr << "usage: server URI\n", 64;
    std::optional<Kv> kv;  // Outlives the runtime that serves it.
    Runtime runtime = Runtime::create({.contexts = 0}).value();
    kv.emplace(runtime);
    Status status = runtime.serve(shared(*kv), argv[1]);
    if (status.ok()) {
        std::cout << "listening on " << runtime.addresses().front() << ", " << runtime.contexts()
                  << " contexts" << std::endl;
        status = runtime.run();
    }
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
