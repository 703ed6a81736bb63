// The settings of a runtime, with unit and default. `WEFT_*` variables override what the program
// sets; docs/environment.md lists the ranges of both. A value out of range is refused with
// INVALID_ARGUMENT, which names the option and its range. So is a negative number, also where its
// conversion made it huge. A WEFT_ variable that weft does not know is a warning, and an error
// under WEFT_STRICT=1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <weft/log.h>
#include <weft/time.h>

namespace weft {

enum class WaitMode : std::uint8_t {
    adaptive,  // Spin for a short while after the last event, then sleep.
    spin,      // Never sleep: lowest latency, one whole cpu.
    block,     // Sleep as soon as no event is pending.
};

// The settings of Runtime::create().
struct RuntimeOptions {
    WaitMode wait = WaitMode::adaptive;  // WEFT_WAIT=adaptive|spin|block
    // How long `adaptive` spins before it sleeps.
    Duration spin = 20us;  // WEFT_SPIN=microseconds
    // Cpu that the context's thread is bound to. Threads that the runtime starts later
    // (offload_threads, name lookups) and children fork()ed in handlers have the cpus of the thread
    // that created the runtime. Threads and processes that a handler starts by other means are
    // bound like the context's thread.
    std::optional<unsigned> cpu{};  // WEFT_CPU=number
    // Threads that serve and call, each with its own connections, behind the same addresses
    // (weft/context.h). 0: one for each cpu that the process may run on, and no more than the cpus
    // that the quota of its cgroup grants (cpu.max, rounded up). At most 64.
    unsigned contexts = 1;  // WEFT_CONTEXTS=number|cpus
    // The cpus of the contexts: context i is bound to cpus[i % size]. Not together with `cpu`. With
    // WaitMode::spin each context needs another one.
    std::vector<unsigned> cpus{};  // WEFT_CPUS=0-3,8,...
    // For calls without a timeout of their own.
    Duration default_timeout = 30s;  // WEFT_TIMEOUT=milliseconds
    // Memory that Runtime::allocate() may hand out. 0: the machine's, at most 64 GiB. Only touched
    // pages cost memory.
    std::size_t arena_bytes_max = 0;  // WEFT_ARENA=bytes
    // Largest body of a request or reply. A body that does not fit a message passes through memory
    // of the arena, which is bounded by eight such bodies, and by four with one peer.
    std::size_t argument_bytes_max = 128u << 20;  // WEFT_ARGUMENT=bytes
    // Memory for calls and replies that wait because their receivers are slow or not connected yet,
    // in all; replies to one client may use a quarter of it. When it is exhausted, peers with more
    // than 64 KiB queued get no more: calls to them are refused; replies are sent by rendezvous or
    // fail with RESOURCE_EXHAUSTED (effect applied); a client that does not read its replies is
    // disconnected.
    std::size_t waiting_bytes_max = 512u << 20;  // WEFT_WAITING=bytes
    // Calls that wait to be sent to one server, of together 16 MiB at most; further calls are
    // refused at once.
    std::uint32_t calls_waiting_max = 16384;  // WEFT_CALLS_WAITING=number
    // Calls that are sent and not yet answered, and the bytes of their requests, to all servers.
    // Further calls wait, and servers take turns. One server may use a quarter of the bytes.
    std::uint32_t calls_in_flight_max = 65536;     // WEFT_CALLS=number
    std::size_t bytes_in_flight_max = 256u << 20;  // WEFT_CALL_BYTES=bytes
    // As a server: calls in handlers. Further calls are pushed back: their clients retry later, or
    // end them with RESOURCE_EXHAUSTED (nested calls, and those beyond the retry budget).
    std::uint32_t handlers_max = 65536;  // WEFT_HANDLERS=number
    // The same for the bytes of requests over 4 KiB.
    std::size_t handler_bytes_max = 256u << 20;  // WEFT_HANDLER_BYTES=bytes
    // Memory of parsed protobuf messages. All requests in handlers share it; one client may use
    // half of what the others leave. Replies that are read have as much again. Larger messages are
    // refused before they are parsed. 0: eight times argument_bytes_max, 64 MiB at least.
    std::size_t parsed_bytes_max = 0;  // WEFT_PARSED_BYTES=bytes
    // A peer that is needed is pinged at this interval when nothing arrives from it; after five
    // more intervals of silence it is considered dead.
    Duration heartbeat_interval = 400ms;  // WEFT_HEARTBEAT=milliseconds
    std::size_t peers_max = 4096;         // WEFT_PEERS=number; per transport
    // Device optimizations that verbs:// leaves out, to measure their effect: names of
    // docs/performance.md with commas between.
    std::string verbs_without{};  // WEFT_VERBS_WITHOUT=name,...
    // Bounds the whole end of the runtime, from run()'s drain to the end of the destructor. These
    // may exceed it: offloaded work that has begun, and a handler that blocks a context's thread,
    // for which the end waits however long they take; and, by a second at most, handlers that clean
    // up when they are cancelled and peers in mid-copy.
    Duration drain_timeout = 5s;  // WEFT_DRAIN=milliseconds
    // On this signal run() writes state() to the log. 0: on no signal. Not SIGINT or SIGTERM, which
    // end run(), nor a signal that no program can wait for.
    int state_signal = 0;  // WEFT_STATE_SIGNAL=USR1|USR2|none
    // Threads for offload(), which all contexts share. 0: as many as contexts, 2 at least.
    unsigned offload_threads = 0;            // WEFT_OFFLOAD_THREADS=number
    LogLevel log_level = LogLevel::warning;  // WEFT_LOG=trace|debug|info|warning|error|off
    // Empty: standard error. The library never waits for it: lines that a pipe has no room for are
    // dropped and counted.
    LogSink log_sink{};
    // No thread is started: the program turns the runtime, or each context (ContextRef), by turn(),
    // turn_until(), block_on() or an event loop, on one thread at a time. Nothing happens between
    // turns, not even a heartbeat: peers that need it consider it dead after 2.4 to 2.8 s.
    // weft::offload() runs its work inside a turn (docs/semantics.md, "A runtime that the program
    // turns").
    bool manual = false;
};

// The settings of Runtime::connect().
struct ConnectOptions {
    // Connections of each context of this runtime to the server, each with another of its contexts
    // (weft/context.h); 1 to 64, and at most one for each context of the server. One connection is
    // served by one context, so a busy client needs several. Each call and transfer goes to the
    // less busy one of two: calls of one thread may then run in another order than they were made.
    unsigned spread = 1;
};

}  // namespace weft
