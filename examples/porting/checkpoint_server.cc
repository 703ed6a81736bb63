// checkpoint_server ADDRESS: prints its address and serves until SIGTERM.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>

#include <weft/runtime.h>

#include "checkpoint.h"

using namespace weft;

constexpr std::size_t checkpoint_bytes_max = 64 << 20;

struct Checkpoints final : Service {
    Runtime* runtime = nullptr;
    std::map<std::string, Buffer> kept;

    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(save_method, [this](Call call) { save(std::move(call)); });
        registrar.add(load_method, [this](Call call) { load(std::move(call)); });
    }

    void save(Call call) {
        const Result<Request> request = decode(call.request());
        if (!request) return call.fail(request.status());
        const RegionRef from = request->memory;
        if (from.length > checkpoint_bytes_max) {
            return call.fail(rejected(Code::out_of_range, "the checkpoint is too large"));
        }
        const Result<Buffer> here = runtime->allocate(from.length);
        if (!here) return call.fail(rejected(Code::resource_exhausted, "no room"));
        // A handler that replies later keeps the call until then.
        const auto held = std::make_shared<Call>(std::move(call));
        held->get(from, 0, *here,
                  [this, held, name = request->name, here = *here](const Status& pulled) {
                      if (!pulled.ok()) return held->fail(pulled);
                      kept[name] = here;
                      held->reply(encode_size(here.size()));
                  });
    }

    void load(Call call) {
        const Result<Request> request = decode(call.request());
        if (!request) return call.fail(request.status());
        const auto found = kept.find(request->name);
        if (found == kept.end()) return call.fail(rejected(Code::not_found, "no such checkpoint"));
        const RegionRef into = request->memory;
        const auto bytes = std::min<std::size_t>(into.length, found->second.size());
        const auto held = std::make_shared<Call>(std::move(call));
        held->put(into, 0, found->second.slice(0, bytes), [held, bytes](const Status& pushed) {
            if (!pushed.ok()) return held->fail(pushed);
            held->reply(encode_size(bytes));
        });
    }
};

int main(int argc, char** argv) try {
    if (argc != 2) return std::cerr << "usage: checkpoint_server ADDRESS\n", 64;
    Checkpoints service;  // The service outlives the runtime that serves it.
    Runtime runtime = Runtime::create().value();
    service.runtime = &runtime;
    Status status = runtime.serve(service, argv[1]);
    if (status.ok()) {
        std::cout << runtime.addresses().front() << std::endl;
        status = runtime.run();
    }
    if (!status.ok()) std::cerr << status.to_string() << '\n';
    return static_cast<int>(status.code());
} catch (const BadResult& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.status().code());
}
