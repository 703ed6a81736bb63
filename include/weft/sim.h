// A cluster in one thread: programs that use weft, on hosts that crash and links that fail, on a
// virtual clock and in an order that a seed decides. The code of weft is the one that production
// runs. The same seed and the same program give the same run, bit for bit (trace_hash()).
//
// What a program must not do for that: ask another clock or other randomness, start threads, or let
// pointers or the order of a hashed table decide an order. Walking a map field of a protobuf
// message is such an order; its entries are sent in the order of their keys while there is a
// simulation. Offloaded work (weft/offload.h) runs in turns of its host, and a thread's sleep in it
// takes real time and no virtual time (from 100 ms on it is logged): pauses are co_await
// sleep_for(), the time is weft::now() (weft/sleep.h), in all that the simulation runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weft/callback.h>
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

// Thread: one, that of the constructor, for everything here. Several simulations may be on it, each
// by itself. Time passes in run_for(), run_until(), and block_on() and turn_until() of a host's
// runtime. Those may be called by what the others run (the function of in() or run_until()), and
// time never goes back; a limit that was passed meanwhile is over.
//
// These abort the program, with a sentence: time that is let pass inside a turn, a host's program
// or act_as(); use on another thread; the name of no host; a value that is out of its range; an
// empty function; destruction by what the simulation runs; block_on(), or turn_until() without a
// limit, of a host that stays paused for an hour of virtual time and beyond the last function of
// in() that was due when the wait met the pause.
//
// Exceptions: what a host's program throws leaves the function that started the host (add(),
// start(), or what let time pass), and the host is down. What the function of in() or run_until()
// throws leaves what let time pass: block_on() when its task has ended, the others at once. The
// simulation can be used further.
class Simulation {
  public:
    // What a host does whenever it starts: it makes its services, listens on "sim://NAME", calls
    // others. What it returns lives as long as the process and is destroyed after its runtime has
    // ended; the runtime may be moved into it. The reference stays valid as long as the simulation,
    // through all lives of the host; while it is down, as for a runtime that was moved from, any
    // use of it aborts the program and says so.
    using Program = std::function<std::shared_ptr<void>(Runtime&)>;

    explicit Simulation(std::uint64_t seed, const Options& options = {});
    ~Simulation();
    Simulation(const Simulation&) = delete;
    Simulation& operator=(const Simulation&) = delete;

    // ---- hosts -------------------------------------------------------------------------------
    // Adds a host and starts it: at once, or at the end of the turn or program that this is called
    // from. Its runtime is turned by the simulation (options.manual), and by no event loop: arm()
    // of it aborts the program, with a sentence. Requires a new name, of 1 to 64 letters, digits,
    // '.', '_' and '-', not starting with '.', and options in their ranges.
    void add(const std::string& name, Program program, RuntimeOptions options = {});
    // What its program is given, always the same; nullptr while it is down.
    Runtime* runtime(std::string_view name) const;
    // False from the moment it goes down: also while what it had under way ends with CANCELLED,
    // which no program would see.
    bool is_up(std::string_view name) const { return runtime(name) != nullptr; }
    // How often it was started.
    std::uint32_t lives(std::string_view name) const;

    // ---- time --------------------------------------------------------------------------------
    TimePoint now() const;
    // A negative time is none, for all of these; one that ends later than `never` ends then.
    void run_for(Duration time);
    // False: `limit` was over first.
    bool run_until(const std::function<bool()>& done, Duration limit);
    // `what` runs once that much time has passed, between the turns of hosts.
    void in(Duration time, Callback<void()> what);
    // Chance for workloads, from the seed. Drawing from it shifts no fault of the network.
    std::uint64_t random();
    // Runs `what` as code of this host, as a turn of it would: its memory may be scarce, and no
    // time passes in it.
    void act_as(const std::string& name, const Callback<void()>& what);

    // ---- faults ------------------------------------------------------------------------------
    // Each may be called for a host that is down, which changes nothing but for start(),
    // slow_down() and starve(). The first four take effect at the end of the turn, program's start,
    // or act_as() that they are called from. What act_as() throws leaves them to the next passing
    // of time. The process ends; its host tells the peers.
    void kill(const std::string& name);
    // The host stops; nobody is told.
    void crash(const std::string& name);
    // The process ends as one does that returns from Runtime::run(): it takes no more calls, waits
    // for handlers and replies, drain_timeout at most, and goes.
    void end(const std::string& name);
    // A host that is down starts its program anew, as another incarnation at the same address; one
    // that is ending does so when it has ended. Any other one goes on.
    void start(const std::string& name);
    // The process stands still, and its connections stay.
    void pause(const std::string& name);
    void resume(const std::string& name);
    // What its turns take: `times` the usual 1 us; 0 is 1.
    void slow_down(const std::string& name, unsigned times);

    // Of links between hosts that were added, up or down; values: weft/sim/link.h.
    void set_links(const Link& all);
    void set_link(const std::string& from, const std::string& to, const Link& link);
    // Nothing gets from one to the other, one way.
    void cut(const std::string& from, const std::string& to);
    void mend(const std::string& from, const std::string& to);
    // Transports refuse this share of messages, from 0 to 1, for a moment, though there is room: 1
    // us, and longer the more of a connection's were refused in a row.
    void refuse(double share);
    // Of what this host asks for, this share, from 0 to 1, can't be had: exposures, connections,
    // room in its transports; and, where the program has an operator new that asks
    // allocation_fails(), what its turns allocate by new (std::nothrow). A call then fails at once,
    // with RESOURCE_EXHAUSTED.
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
    // `see` is shown all the memory of a host that a get of another may read, whenever one begins;
    // an empty one: nothing is.
    using Witness = Callback<void(const std::string& owner, const std::string& reader, ByteView)>;
    void watch_reads(Witness see);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

// For a program's own operator new(std::nothrow), which the library does not replace: whether this
// allocation is to fail (tools/weft/sim/failing_new.cc). Thread: any; false outside of simulations.
bool allocation_fails() noexcept;

}  // namespace weft::sim
