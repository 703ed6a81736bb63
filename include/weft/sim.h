// A cluster in one thread: programs that use weft, on hosts that crash and links that fail, on a
// virtual clock and in an order that a seed decides. The code of weft is the one that production
// runs. The same seed and the same program give the same run, bit for bit (trace_hash()).
//
// What a program must not do for that: ask another clock or other randomness, start threads, or let
// pointers decide an order. Offloaded work (weft/offload.h) runs in turns of its host, and a
// thread's sleep in it takes real time and no virtual time (from 100 ms on it is logged): pauses
// are co_await sleep_for(), the time is weft::now() (weft/sleep.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weft/runtime.h>
#include <weft/sim/link.h>
#include <weft/time.h>

namespace weft::sim {

struct Options {
    // Between all hosts.
    Link links{};
    // Each access of a transfer is judged when it happens, as on sm and tcp. False: as a fabric
    // does that enforces a key and bounds only, so that owners must grant ranges and wait for those
    // who have one.
    bool judges_access = true;
};

// Thread: one, for everything here. A host's program runs inside the functions that let time pass:
// run_for(), run_until(), and block_on() and turn_until() of a host's runtime. Those abort the
// program, and say so, inside a turn or a host's program, where no time passes.
class Simulation {
  public:
    // What a host does whenever it starts: it makes its services, listens on "sim://NAME", calls
    // others. What it returns lives as long as the process and is destroyed after its runtime.
    using Program = std::function<std::shared_ptr<void>(Runtime&)>;

    explicit Simulation(std::uint64_t seed, const Options& options = {});
    ~Simulation();
    Simulation(const Simulation&) = delete;
    Simulation& operator=(const Simulation&) = delete;

    // ---- hosts -------------------------------------------------------------------------------
    // Adds a host and starts it. Its runtime is turned by the simulation (options.manual). Requires
    // a new name, of letters, digits, '.', '_' and '-'.
    void add(const std::string& name, Program program, RuntimeOptions options = {});
    // nullptr while it is down.
    Runtime* runtime(std::string_view name) const;
    // False from the moment it goes down: also while what it had under way ends with CANCELLED,
    // which no program would see.
    bool is_up(std::string_view name) const { return runtime(name) != nullptr; }
    // How often it was started.
    std::uint32_t lives(std::string_view name) const;

    // ---- time --------------------------------------------------------------------------------
    TimePoint now() const;
    // A negative time is none, for all of these.
    void run_for(Duration time);
    // False: `limit` was over first.
    bool run_until(const std::function<bool()>& done, Duration limit);
    // `what` runs once that much time has passed, between the turns of hosts.
    void in(Duration time, std::function<void()> what);
    // Chance for workloads, from the seed. Drawing from it shifts no fault of the network.
    std::uint64_t random();
    // Runs `what` as code of this host, as a turn of it would: its memory may be scarce.
    void act_as(const std::string& name, const std::function<void()>& what);

    // ---- faults ------------------------------------------------------------------------------
    // Each may be called for a host that is down. The first four take effect at the end of the
    // turn, or of the program's start, that they are called from. The process ends; its host tells
    // the peers.
    void kill(const std::string& name);
    // The host stops; nobody is told.
    void crash(const std::string& name);
    // The process ends as one does that returns from Runtime::run(): it takes no more calls, waits
    // for handlers and replies, drain_timeout at most, and goes.
    void end(const std::string& name);
    // A host that is down starts its program anew, as another incarnation at the same address.
    void start(const std::string& name);
    // The process stands still, and its connections stay.
    void pause(const std::string& name);
    void resume(const std::string& name);
    // What its turns take: `times` the usual 1 us.
    void slow_down(const std::string& name, unsigned times);

    void set_links(const Link& all);
    void set_link(const std::string& from, const std::string& to, const Link& link);
    // Nothing gets from one to the other, one way.
    void cut(const std::string& from, const std::string& to);
    void mend(const std::string& from, const std::string& to);
    // Transports refuse this share of messages for a moment, though there is room.
    void refuse(double share);
    // Of what this host asks for, this share can't be had: exposures, connections, room in its
    // transports; and, where the program has an operator new that asks allocation_fails(), what its
    // turns allocate by new (std::nothrow). A call then fails at once, with RESOURCE_EXHAUSTED.
    void starve(const std::string& name, double share);
    // Nothing is cut, refused, paused, slowed down or starved any more, and the links are those of
    // the beginning. Hosts that are down stay down.
    void heal();

    // ---- what happened -----------------------------------------------------------------------
    // Of everything that arrived so far, in order, with its time.
    std::uint64_t trace_hash() const;
    std::uint64_t events() const;
    // When something from one host came to another last, be it read there or not;
    // TimePoint::min(): never.
    TimePoint last_heard(const std::string& by, const std::string& from) const;
    // The last packets (48 at most), for people, in order.
    struct Happening {
        TimePoint at;
        std::string what;
    };
    std::vector<Happening> last_events() const;
    std::uint64_t turns() const;
    // Packets that were lost, repeated, damaged or refused, connections given up, memory that could
    // not be had, and faults of hosts.
    std::uint64_t faults() const;
    // Transfers that touched memory after its owner had been told that none would. Always 0, or
    // weft is wrong.
    std::uint64_t late_accesses() const;
    // Words of 8 bytes that left in messages and that nothing had written. Always 0, or weft is
    // wrong.
    std::uint64_t unwritten_words() const;
    // `see` is shown all the memory of a host that a get of another may read, whenever one begins.
    using Witness =
        std::function<void(const std::string& owner, const std::string& reader, ByteView)>;
    void watch_reads(Witness see);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

// For a program's own operator new(std::nothrow), which the library does not replace: whether this
// allocation is to fail (tools/weft/sim/failing_new.cc). Thread: any; false outside of simulations.
bool allocation_fails() noexcept;

}  // namespace weft::sim
