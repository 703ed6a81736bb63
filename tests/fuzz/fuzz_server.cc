// A whole server in the simulated network, sent transport messages that the input makes of good
// frames and of bytes of its own: it serves on, and nothing is left behind.
#include "fuzz/fuzz.h"
#include "support/victim.h"

using namespace weft;
using namespace weft::test;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    Victim victim(input.byte() % 2 == 0);
    const std::vector<Frame> good = victim.good_frames();
    {
        RawPeer raw(victim.rig);
        while (!input.empty()) {
            Frame message = good[input.below(good.size())];
            for (std::uint8_t changes = input.byte() % 4; changes > 0 && !message.empty();
                 --changes) {
                const std::size_t at = input.below(message.size());
                const ByteView bytes = input.take(1 + input.byte() % 8);
                for (std::size_t i = 0; i < bytes.size() && at + i < message.size(); ++i) {
                    message[at + i] = bytes[i];
                }
            }
            if (message.empty()) continue;
            if (!raw.peer || raw.lost) raw.connect("server");
            raw.send(message);
            raw.wait();
            raw.take();
        }
        victim.check_serves();
    }
    victim.rig.run_for(5s);
    fuzz::must(victim.server.node().server.executing() == 0, "no call is left in a handler");
    fuzz::must(victim.server.node().bulk.transfers.in_flight() == 0, "no transfer is left");
    fuzz::must(victim.rig.world->late_accesses() == 0, "no memory was touched late");
    return 0;
}
