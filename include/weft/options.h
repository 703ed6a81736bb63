// Everything a user may tune, with unit and default. `WEFT_*` variables overlay what the program
// sets; docs/environment.md has the ranges of both. A value out of range is refused with
// INVALID_ARGUMENT, by its name and range: numbers that are negative, too, also where that made
// them huge. A WEFT_ variable that weft does not know is a warning, and an error under
// WEFT_STRICT=1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <weft/log.h>
#include <weft/time.h>

namespace weft {

enum class WaitMode : std::uint8_t {
    adaptive,  // Spin for a short while after the last event, then sleep.
    spin,      // Never sleep: lowest latency, one whole cpu.
    block,     // Sleep as soon as nothing is there.
};

struct RuntimeOptions {
    WaitMode wait = WaitMode::adaptive;  // WEFT_WAIT=adaptive|spin|block
    // How long `adaptive` spins before it sleeps.
    Duration spin = 20us;  // WEFT_SPIN=microseconds
    // Cpu the context's thread is bound to. Threads that the runtime starts later (offload_threads,
    // name lookups) and children fork()ed in handlers have the cpus of the thread that created it;
    // threads and processes that a handler starts by other means are bound like the context's.
    std::optional<unsigned> cpu{};  // WEFT_CPU=number
    // For calls that name no timeout of their own.
    Duration default_timeout = 30s;  // WEFT_TIMEOUT=milliseconds
    // Memory that Runtime::allocate() may hand out. 0: the machine's, at most 64 GiB. Only touched
    // pages cost anything.
    std::size_t arena_bytes_max = 0;  // WEFT_ARENA=bytes
    // Largest body of a request or reply. What does not fit a message passes through memory of the
    // arena, which is bounded by eight such bodies, and by four with one peer.
    std::size_t argument_bytes_max = 128u << 20;  // WEFT_ARGUMENT=bytes
    // Memory for calls and replies that wait because their receivers are slow or not there yet, in
    // all; replies to one client have a quarter of it. When it is used up, peers with more than
    // 64 KiB waiting get no more: calls are refused, replies are lent, or fail with
    // RESOURCE_EXHAUSTED (effect applied), and a client that reads nothing loses its connection.
    std::size_t waiting_bytes_max = 512u << 20;  // WEFT_WAITING=bytes
    // Calls that wait to be sent to one server; more are refused at once.
    std::uint32_t calls_waiting_max = 16384;  // WEFT_CALLS_WAITING=number
    // Calls that are sent and not answered, and the bytes of their requests, to all servers; the
    // others wait, and servers take turns. To one server a quarter of the bytes.
    std::uint32_t calls_in_flight_max = 65536;     // WEFT_CALLS=number
    std::size_t bytes_in_flight_max = 256u << 20;  // WEFT_CALL_BYTES=bytes
    // As a server: calls in handlers. Clients of more are asked to try again later.
    std::uint32_t handlers_max = 65536;  // WEFT_HANDLERS=number
    // The same for the bytes of their requests, of those over 4 KiB.
    std::size_t handler_bytes_max = 256u << 20;  // WEFT_HANDLER_BYTES=bytes
    // Memory of protobuf messages that are parsed: of requests in handlers together, a client half
    // of what the others leave, and as much again for what is read of replies. Larger ones are
    // refused before they are parsed. 0: eight times argument_bytes_max, 64 MiB at least.
    std::size_t parsed_bytes_max = 0;  // WEFT_PARSED_BYTES=bytes
    // Peers that are needed are asked this often whether they live, when nothing is heard from
    // them; after five more intervals of silence they are dead.
    Duration heartbeat_interval = 400ms;  // WEFT_HEARTBEAT=milliseconds
    std::size_t peers_max = 4096;         // WEFT_PEERS=number; per transport
    // What verbs:// leaves out of that by which it spares the card, to measure what it is worth:
    // names of docs/performance.md with commas between.
    std::string verbs_without{};  // WEFT_VERBS_WITHOUT=name,...
    // Bounds the whole end of the runtime, from run()'s drain to the end of the destructor. Beyond
    // it go: offloaded work that has begun, which is waited for however long it takes; and a second
    // at most for handlers that clean up when they are cancelled, and for peers in mid-copy.
    Duration drain_timeout = 5s;  // WEFT_DRAIN=milliseconds
    // On this signal run() writes state() to the log. 0: on none. Not SIGINT or SIGTERM, which end
    // run(), nor one that no program can wait for.
    int state_signal = 0;  // WEFT_STATE_SIGNAL=USR1|USR2|none
    // Threads for offload().
    unsigned offload_threads = 2;            // WEFT_OFFLOAD_THREADS=number
    LogLevel log_level = LogLevel::warning;  // WEFT_LOG=trace|debug|info|warning|error|off
    // Empty: standard error, which is never waited for: lines that a pipe has no room for are left
    // out, and counted.
    LogSink log_sink{};
    // No thread is started: the program turns the runtime, by Runtime::turn(), turn_until(),
    // block_on() or an event loop, on one thread at a time. Nothing happens between turns, also no
    // heartbeat: peers that wait for more than 2.4 s give this runtime up. weft::offload() runs its
    // work inside a turn (docs/semantics.md, "A runtime that the program turns").
    bool manual = false;
};

}  // namespace weft
