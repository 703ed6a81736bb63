// A simulated cluster in one thread: programs that use weft run on hosts that crash and links that
// fail, on a virtual clock and in an order that a seed decides. The code of weft is the code that
// runs in production. The same seed and the same program give the same run, bit for bit
// (trace_hash()).
//
// For that, a program must not read another clock or use other randomness, start threads, or let
// pointers or the order of a hash table decide an order. Iterating over a map field of a protobuf
// message is such an order; on the wire its entries are in the order of their keys while a
// simulation exists. Offloaded work (weft/offload.h) runs in turns of its host. A thread's sleep in
// it takes real time and no virtual time (from 100 ms on it is logged). In all code that the
// simulation runs, pauses are co_await sleep_for() and the time is weft::now() (weft/sleep.h).
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

// Options of a simulation.
struct Options {
    // The links between all hosts at the start.
    Link links{};
    // True: each access of a transfer is checked when it happens, as on sm and tcp. False: the
    // network enforces a key and bounds only, as a fabric does, so owners must grant ranges and
    // wait for peers that hold a grant.
    bool checks_access = true;
};

// Thread: one, that of the constructor, for everything here. Several independent simulations may
// use it. Time passes in run_for(), run_until(), and block_on() and turn_until() of a host's
// runtime. The function of in() or run_until() may call these, too. Time never goes back: if an
// inner call advances it beyond the limit of an outer one, the outer one ends.
//
// These abort the program with a message: letting time pass inside a turn, a host's program or
// act_as(); use on another thread, except of now(), watch_reads() and the functions of
// "observation" that take no name; an unknown host name; a value out of its range; an empty
// function; destruction by code that the simulation runs; block_on(), or turn_until() without a
// limit, of a host that is still paused one hour of virtual time after the last function of in()
// that was scheduled when the wait found it paused.
//
// Exceptions: an exception of a host's program leaves the function that started the host (add(),
// start(), or the function that lets time pass), and the host is down. An exception of the function
// of in() or run_until() leaves the function that lets time pass: block_on() when its task has
// ended, the others at once. The simulation remains usable.
class Simulation {
  public:
    // Runs whenever a host starts: it makes the host's services, listens on "sim://NAME", calls
    // others. The result lives as long as the process and is destroyed after its runtime has ended;
    // the runtime may be moved into it. The reference stays valid as long as the simulation,
    // through all lives of the host. While the host is down it refers to an empty runtime: any use
    // aborts the program with a message.
    using Program = std::function<std::shared_ptr<void>(Runtime&)>;

    explicit Simulation(std::uint64_t seed, const Options& options = {});
    ~Simulation();
    Simulation(const Simulation&) = delete;
    Simulation& operator=(const Simulation&) = delete;

    // ---- hosts -------------------------------------------------------------------------------
    // Adds a host and starts it: at once, or at the end of the turn or program that calls this. The
    // simulation turns its runtime (options.manual), and no event loop can: its arm() aborts the
    // program with a message. Requires a new name, of 1 to 64 letters, digits, '.', '_' and '-',
    // not starting with '.', and options in their ranges, with contexts that are not 0.
    void add(const std::string& name, Program program, RuntimeOptions options = {});
    // The runtime that the host's program is given, always the same object; nullptr while it is
    // down.
    Runtime* runtime(std::string_view name) const;
    // False from the moment the host goes down, also while its operations in flight end with
    // CANCELLED, which no program would see.
    bool is_up(std::string_view name) const { return runtime(name) != nullptr; }
    // How often the host was started.
    std::uint32_t starts(std::string_view name) const;

    // ---- time --------------------------------------------------------------------------------
    TimePoint now() const;
    // For all of these, a negative time is zero, and a time that would end after `never` ends at
    // `never`.
    void run_for(Duration time);
    // False: `limit` passed first, or nothing is left to happen and the limit ends at `never`.
    bool run_until(const std::function<bool()>& done, Duration limit);
    // `what` runs once, between the turns of hosts, when that much time has passed.
    void in(Duration time, Callback<void()> what);
    // Random numbers for workloads, from the seed. Drawing them changes no fault of the network.
    std::uint64_t random();
    // Runs `what` as code of this host, as a turn of it would: its memory may be scarce
    // (limit_memory()), and no time passes in it.
    void act_as(const std::string& name, const Callback<void()>& what);

    // ---- faults ------------------------------------------------------------------------------
    // Those that name one host may be called while it is down; only start(), slow_down() and
    // limit_memory() then change more than faults(). kill(), crash(), end() and start() take effect
    // at the end of the turn, program's start, or act_as() that calls them; when act_as() throws,
    // when time passes next.
    //
    // The process ends; its host reports that to the peers.
    void kill(const std::string& name);
    // The host stops, and nothing reports that to the peers.
    void crash(const std::string& name);
    // The process ends as after Runtime::run(): it refuses new calls, waits for handlers and
    // replies, drain_timeout at most, and exits.
    void end(const std::string& name);
    // Starts the program of a host that is down, as another incarnation at the same address. A host
    // that is ending starts when it has ended. A host that is up continues unchanged.
    void start(const std::string& name);
    // The options of the host from its next start on, as in add(): a process that starts again with
    // another configuration.
    void set_options(const std::string& name, RuntimeOptions options);
    // The process stops running, and its connections stay.
    void pause(const std::string& name);
    void resume(const std::string& name);
    // One context of the host takes no turn for `time`, as if a handler blocked it; its others do.
    // No effect on a context that the host does not have, and on a host that is down.
    void stall(const std::string& name, unsigned context, Duration time);
    // Each turn takes `times` the usual 1 us; 0 is 1.
    void slow_down(const std::string& name, unsigned times);

    // For links between hosts that were added, up or down; values: weft/sim/link.h.
    void set_links(const Link& all);
    void set_link(const std::string& from, const std::string& to, const Link& link);
    // Nothing arrives from one host at the other, in this direction only.
    void cut(const std::string& from, const std::string& to);
    void heal(const std::string& from, const std::string& to);
    // Transports refuse this share of messages, from 0 to 1, although there is room: for 1 us, and
    // longer the more messages of the connection were refused in a row.
    void refuse(double share);
    // This share, from 0 to 1, of the resources that the host requests is not available: exposures,
    // connections, room in its transports; and, where the program has an operator new that calls
    // allocation_fails(), memory that its turns allocate by new (std::nothrow). An RPC that needs
    // one of them fails at once, with RESOURCE_EXHAUSTED.
    void limit_memory(const std::string& name, double share);
    // Ends all cuts, refusals, pauses, slowdowns and starvation, and restores the links of the
    // start. Hosts that are down stay down.
    void heal();

    // ---- observation -------------------------------------------------------------------------
    // Covers everything that arrived so far, in order, with its time.
    std::uint64_t trace_hash() const;
    std::uint64_t events() const;
    // When data from `from` last arrived at `by`, whether or not it was read; TimePoint::min():
    // never.
    TimePoint last_received(const std::string& by, const std::string& from) const;
    // The last packets (48 at most), for people, in order.
    struct LoggedEvent {
        TimePoint at;
        std::string what;
    };
    std::vector<LoggedEvent> last_events() const;
    std::uint64_t turns() const;
    // Packets that were lost, repeated or damaged, messages refused, links changed or cut, memory
    // that could not be allocated, and faults of hosts.
    std::uint64_t faults() const;
    // Transfers that would have touched memory after its owner had been notified that none would;
    // each is refused. Counted with checks_access = false. Always 0, unless weft has a bug.
    std::uint64_t late_accesses() const;
    // Words of 8 bytes that messages carried and that nothing had written. Always 0, unless weft
    // has a bug.
    std::uint64_t unwritten_words() const;
    // `see` receives all memory of a host that a get of another host may read, whenever such a get
    // begins. An empty `see` ends the watch.
    using ReadObserver =
        Callback<void(const std::string& owner, const std::string& reader, ByteView)>;
    void watch_reads(ReadObserver see);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

// For a program's own operator new(std::nothrow), which the library does not replace: whether this
// allocation must fail (tests/simulation/failing_new.cc). Thread: any; false outside of
// simulations.
bool allocation_fails() noexcept;

}  // namespace weft::sim
