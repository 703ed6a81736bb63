// A fake RDMA device, placed between weft and rdma-core by linking. This file and the files beside
// it define every function of rdma-core that the executable calls. So no kernel and no real device
// is involved, and nothing waits (docs/testing.md, "The fake device").
//
// It follows the specification immediately: a posted work request is carried out before
// ibv_post_send() returns, unless a script delays it. It is strict where real devices are lenient:
// a queue has exactly the requested room, a destroyed queue pair loses its completions, and private
// data arrives padded with zeros.
//
// Thread: any; one mutex guards everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <weft/time.h>

#include "na/verbs/rdma.h"

namespace weft::test {

// The limits that the device reports and enforces.
struct FakeLimits {
    int devices = 1;  // fake0 on 127.0.0.1, ::1 and TEST_RDMA_HOST; fake1 on 127.0.0.2.
    int ports = 1;    // Of each device; only the last port is up.
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

// The open objects of the device.
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

// The scripts. `card` is a device's index among those that are open now: 0 is the device of the
// endpoint that was opened first.
class FakeVerbs {
  public:
    static constexpr int any_card = -1;

    // Requires: nothing is open. The device works until a script says otherwise.
    explicit FakeVerbs(FakeLimits limits = {});
    // Ends all scripts.
    ~FakeVerbs();
    FakeVerbs(const FakeVerbs&) = delete;
    FakeVerbs& operator=(const FakeVerbs&) = delete;

    void set_limits(const FakeLimits& limits);
    FakeCounts counts() const;
    // Errors that no driver tolerates: objects destroyed before their dependents, or with events
    // that were not acknowledged, where a real call would wait for ever.
    std::vector<std::string> complaints() const;
    // Bytes of heap that the fake itself uses; with live_memory() linked.
    static std::ptrdiff_t own_bytes();
    // The times that the fake has taken its mutex, this one included.
    std::uint64_t entries() const;
    // The most completions that ever waited in a queue of this device, and the queue's room.
    std::size_t fullest_queue(int card) const;
    std::size_t queue_room(int card) const;
    // Registered bytes.
    std::size_t locked_bytes() const;
    // Registrations that were made, and that were ended, since the start of the program.
    std::uint64_t registrations() const;
    std::uint64_t deregistrations() const;
    // Receive buffers posted on this device.
    std::size_t receives_posted(int card) const;

    // Fails one of the next registrations, after `after` others.
    void fail_registration(int error, int after = 0);
    void fail_deregistrations(int error, int times = 1);
    // The next destructions of queue pairs fail and leave the queue pairs unchanged.
    void fail_destroys(int error, int times = 1);
    void refuse_posts(int error, int times = 1, int card = any_card);
    // The next work request on such a lane ends with `status` and has no effect.
    void end_next_work(FakeLane lane, ibv_wc_status status, int card = any_card);

    // No packet arrives: work requests and messages of rdma_cm hang.
    void cut();
    // No message of rdma_cm arrives.
    void cut_cm();
    // `time` passes for hanging work: requests that have used up their retries fail.
    void pass(Duration time);
    // All hanging work expires, also connection requests that no process accepts.
    void expire();
    void restore();
    // The receivers of this device appear to have no buffers.
    void limit_memory(int card);
    void feed();

    // The device fails permanently.
    void break_device();
    // A completion queue of this device overflows.
    void overflow(int card);
    // rdma_cm reports that the device was removed.
    void remove_device();
    void set_port(bool up);

    // The next connection is refused because the other side still has the queue pair's number.
    void make_stale(int times = 1);
    // The reason that a disconnect or a rejection carries from now on.
    void name_rejections(int status);
    // The next step of rdma_cm finds no route.
    void lose_route(int times = 1);
    // The next connections stay in their channel of events.
    void fail_migrations(int times = 1);
};

}  // namespace weft::test
