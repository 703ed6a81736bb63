// Calls by a generated stub to a generated service, as `weft perf proto` makes them: 64 bytes in
// each direction.
#include "bench.weft.h"
#include "counting/stepped.h"

using namespace weft;
using bench::Payload;
using counting::Caller;

struct Bench final : bench::BenchService {
    Status Echo(Call&, const Payload& in, Payload& out) override {
        out.set_data(in.data());
        return {};
    }
};

int main(int argc, char** argv) {
    Bench service;
    return counting::run(argc, argv, service, [](Caller& caller) {
        static const Payload request = [] {
            Payload made;
            made.set_data(std::string(64, 'x'));
            return made;
        }();
        bench::BenchClient(caller.channel)
            .Echo(request, {},
                  [&caller](const Status& status, const Payload&) { caller.on_done(status); });
    });
}
