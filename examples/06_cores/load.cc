// load URI ROUNDS: sixteen coroutines write and read keys of their own, and check every value.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include <weft/runtime.h>

#include "key.h"
#include "kv.weft.h"

using namespace weft;

constexpr unsigned workers = 16;
constexpr unsigned keys = 10;  // Of each.

struct Load {
    // Straight to the context of the key, once the first reply has told how many there are.
    demo::KvClient at(const std::string& key) const {
        return demo::KvClient(channel.by(hash_of(key)));
    }

    Task<void> work(unsigned worker) {
        for (unsigned round = 0; round < rounds; ++round) {
            demo::Pair pair;
            pair.set_key(std::to_string(worker) + "/" + std::to_string(round % keys));
            pair.set_value(std::to_string(round));
            (co_await at(pair.key()).Put(pair)).value();
            demo::Key key;
            key.set_text(pair.key());
            wrong += (co_await at(pair.key()).Get(key)).value().value() != pair.value();
        }
        demo::Key prefix;
        prefix.set_text(std::to_string(worker) + "/");
        const demo::Pairs pairs = (co_await demo::KvClient(channel).Scan(prefix)).value();
        wrong += static_cast<unsigned>(pairs.pairs_size()) != std::min(rounds, keys);
        for (const demo::Pair& pair : pairs.pairs())
            wrong += std::stoul(pair.value()) + keys < rounds;
    }

    Task<void> all() {
        std::vector<Task<void>> tasks;
        for (unsigned worker = 0; worker < workers; ++worker) tasks.push_back(work(worker));
        co_await when_all(std::move(tasks));
    }

    const Channel channel;
    const unsigned rounds;
    unsigned wrong = 0;
};

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: load URI ROUNDS\n", 64;
    Runtime runtime = Runtime::create().value();
    Load load{runtime.connect(argv[1]).value(), static_cast<unsigned>(std::stoul(argv[2]))};
    runtime.block_on(load.all());
    std::cout << workers * load.rounds << " values on " << load.channel.contexts() << " contexts, "
              << load.wrong << " wrong\n";
    return load.wrong == 0 ? 0 : 1;
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
