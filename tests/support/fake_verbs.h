// An RDMA device that is not there: it stands between weft and rdma-core by linking. What of
// rdma-core the executable calls is defined here and in the files beside this one, so no kernel
// and no card is asked, and nothing waits (docs/testing.md, "The fake device").
//
// It does what the specification says, at once: a work request that is posted is carried out
// before ibv_post_send() returns, unless a script holds it up. Strict where cards are lenient: a
// queue has exactly the room that was asked for, a queue pair that is destroyed forgets its
// completions, and private data arrives padded with zeros.
//
// Thread: any; one mutex around everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <weft/time.h>

#include "na/verbs/rdma.h"

namespace weft::test {

// What the device says it can, and keeps to.
struct FakeLimits {
    int devices = 1;  // fake0 on 127.0.0.1, ::1 and TEST_RDMA_HOST; fake1 on 127.0.0.2.
    int ports = 1;    // Of each device; the last one is up.
    bool is_iwarp = false;
    int pairs_max = 1 << 16;
    int completions_max = 1 << 22;
    int shared_receives_max = 1 << 15;
    int regions_max = 1 << 20;
    std::size_t locked_bytes_max = std::size_t{1} << 40;  // As `ulimit -l`.
    std::uint32_t inline_bytes_max = 512;
    int reads_max = 16;
    std::uint32_t message_bytes_max = 1u << 30;
};

// What of the device is open.
struct FakeCounts {
    int contexts = 0, domains = 0, regions = 0, channels = 0, queues = 0, shared_queues = 0;
    int pairs = 0, connections = 0, event_channels = 0;
    int total() const {
        return contexts + domains + regions + channels + queues + shared_queues + pairs +
               connections + event_channels;
    }
    friend bool operator==(const FakeCounts&, const FakeCounts&) = default;
};

// A queue pair with a shared receive queue carries messages, one without carries transfers.
enum class FakeLane : std::uint8_t { messages, transfers };

// The scripts. A card is named by its place among those that are open now: 0 is that of the
// endpoint that was opened first.
class FakeVerbs {
  public:
    static constexpr int any_card = -1;

    // Requires: nothing is open. All is well with the device until something else is said.
    explicit FakeVerbs(FakeLimits limits = {});
    // Whatever was said is forgotten.
    ~FakeVerbs();
    FakeVerbs(const FakeVerbs&) = delete;
    FakeVerbs& operator=(const FakeVerbs&) = delete;

    void set_limits(const FakeLimits& limits);
    FakeCounts counts() const;
    // What no driver would forgive: objects that are destroyed before what depends on them, or
    // with events that were not acknowledged, where a real call would wait for ever.
    std::vector<std::string> complaints() const;
    // Bytes of the heap that the fake itself has; with support/... live_memory() linked.
    static std::ptrdiff_t own_bytes();
    // The most completions that a queue of this card ever had waiting, and its room.
    std::size_t fullest_queue(int card) const;
    std::size_t queue_room(int card) const;
    // Bytes that are registered.
    std::size_t locked_bytes() const;
    // Receive buffers of this card that messages may go to.
    std::size_t receives_posted(int card) const;

    // One of the next: the one behind `after` others.
    void fail_registration(int error, int after = 0);
    void fail_deregistrations(int error, int times = 1);
    // Queue pairs that are to be destroyed and stay as they are.
    void fail_destroys(int error, int times = 1);
    void refuse_posts(int error, int times = 1, int card = any_card);
    // The next work request on such a lane ends with `status`, undone.
    void end_next_work(FakeLane lane, ibv_wc_status status, int card = any_card);

    // No packet gets through: work requests and words of rdma_cm hang.
    void cut();
    // So much time passes for what hangs: what has tried as often as it was told to ends.
    void pass(Duration time);
    // All the time there is, also for connection requests that nobody takes.
    void expire();
    void restore();
    // The receivers of this card seem to have no buffers.
    void starve(int card);
    void feed();

    // The device is broken for good.
    void break_device();
    // The queue of completions of this card has overflowed.
    void overflow(int card);
    // rdma_cm says that it was taken out.
    void remove_device();
    void set_port(bool up);

    // The next connection is refused, because the other side still knows the queue pair's number.
    void make_stale(int times = 1);
    // What an end that hangs up or rejects says for a reason from now on.
    void name_rejections(int status);
    // The next step of rdma_cm finds no route.
    void lose_route(int times = 1);
};

}  // namespace weft::test
