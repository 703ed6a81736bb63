// One endpoint's part of an RDMA device: one completion queue for everything, one shared queue of
// receive buffers, and the registered memory of messages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <weft/result.h>

#include "na/verbs/device_counters.h"
#include "na/verbs/message_memory.h"
#include "na/verbs/rdma.h"
#include "na/verbs/shared_device.h"
#include "na/verbs_optimizations.h"

namespace weft::na::verbs {

// The parameters of an endpoint's device.
struct DeviceOptions {
    std::uint32_t send_slots = 0;
    std::uint32_t receive_slots = 0;
    std::size_t message_bytes = 0;
    std::size_t peers_max = 0;
    bool sleeps = true;
    VerbsOptimizations optimizations;
    // The endpoint's context, and their number: each context has other interrupts of the device.
    std::uint16_t context = 0;
    std::uint16_t contexts = 1;
};

// The purpose of a queue pair.
enum class QueuePairRole : std::uint8_t {
    messages,   // SEND, both ways.
    initiator,  // READ and WRITE by this side; admits no remote access.
    target,     // READ and WRITE by a peer.
};

// Thread: its endpoint's owner.
class Device {
  public:
    // Errors: RESOURCE_EXHAUSTED, with the remedy.
    static Result<std::unique_ptr<Device>> open(std::shared_ptr<SharedDevice> device,
                                                const DeviceOptions& options);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    std::string name() const { return device_->name(); }
    bool is_behind(const ibv_context* other) const;
    // The number of peers for which the completion queue has room.
    std::size_t peers_max() const { return peers_max_; }

    // Errors: RESOURCE_EXHAUSTED.
    Result<Owned<ibv_qp>> make_queue_pair(QueuePairRole role);
    // Registers memory for `access` (IBV_ACCESS_...). Errors: RESOURCE_EXHAUSTED, with the remedy.
    Result<Owned<ibv_mr>> register_memory(Bytes memory, int access);
    // As SharedDevice::expose() and end_region().
    Result<SharedDevice::Region*> expose(const Exposure& exposure);
    int end_region(SharedDevice::Region& region) { return device_->end_region(region); }

    // Links the requests and posts them: one list, one doorbell. 0, or an errno: then some of them
    // may be posted, and the queue pair is unusable.
    int post_sends(ibv_qp& qp, std::span<ibv_send_wr> requests);
    // Posts the buffers of `slots`, in lists of at most 64.
    void post_receives(std::span<const std::uint32_t> slots);
    // Counts a message with content that arrived in that slot.
    void count_message(std::uint32_t slot) {
        ++counters.payload_writes;
        note_page(receives_, receives_.at(slot));
    }
    // Returns the number of completions.
    std::size_t poll(std::span<ibv_wc> completions);
    // Requests a wake-up by the next completion. False: one has arrived already.
    bool arm();
    // Consumes wake-ups from wait_fd().
    void consume_wakeups();
    int wait_fd() const { return channel_ ? channel_->fd : -1; }
    int async_fd() const { return device_->context()->async_fd; }
    // The next event of the device itself; nullopt: none is left. One endpoint gets it.
    std::optional<AsyncEvent> next_async_event() { return device_->next_async_event(); }
    // Readable once another endpoint has read that this part has failed; -1: there is no other one.
    int failure_fd() const { return part_.bell ? part_.bell.get() : -1; }
    // Why the device, or a queue of this part, has failed; once.
    std::optional<std::string> take_failure() { return device_->take_failure(part_); }
    // Reports that the device has failed, to each endpoint that has it open.
    void report_failure(std::string why) {
        device_->report({AsyncEvent::Affects::device, std::move(why)});
    }

    MessageMemory& sends() { return sends_; }
    MessageMemory& receives() { return receives_; }
    std::uint32_t send_key() const { return send_mr_->lkey; }
    std::uint32_t inline_bytes_max() const { return inline_bytes_max_; }
    const VerbsOptimizations& optimizations() const { return optimizations_; }
    std::uint32_t reads_max() const { return device_->reads_max(); }
    std::size_t transfer_bytes_max() const { return device_->transfer_bytes_max(); }

    DeviceCounters counters;

  private:
    explicit Device(std::shared_ptr<SharedDevice> device) : device_(std::move(device)) {}
    Status open_all(const DeviceOptions& options);
    void open_thread_domain();
    Status open_queues(const DeviceOptions& options);
    Status open_messages(const DeviceOptions& options);
    Status open_part(const DeviceOptions& options);
    ibv_cq* make_completions(std::uint32_t depth, std::uint32_t interrupt);
    ibv_pd* queue_domain() const {
        return thread_domain_ ? thread_domain_.get() : device_->domain();
    }
    void count(const ibv_qp& qp, std::span<const ibv_send_wr> requests);
    void note_page(MessageMemory& memory, const std::byte* message) {
        if (memory.misses_page(message)) ++counters.page_misses;
    }

    // The device, and the objects of this part, each before those that are made of it.
    const std::shared_ptr<SharedDevice> device_;
    SharedDevice::Part part_;
    Owned<ibv_td> ibv_thread_;     // Its objects belong to one thread: the driver takes no lock.
    Owned<ibv_pd> thread_domain_;  // The domain of such queues. Both empty: not supported.
    Owned<ibv_comp_channel> channel_;
    Owned<ibv_cq> queue_;
    Owned<ibv_srq> shared_;

    // Memory of messages.
    MessageMemory sends_;
    MessageMemory receives_;
    Owned<ibv_mr> send_mr_;
    Owned<ibv_mr> receive_mr_;
    std::uint32_t receive_slots_ = 0;

    // Constant once the device is open.
    VerbsOptimizations optimizations_;
    std::uint32_t inline_bytes_max_ = 0;
    std::size_t peers_max_ = 0;

    std::optional<ibv_wc> armed_completion_;  // Read by arm().
    std::uint32_t last_qp_ = 0;  // The number of the last queue pair that was posted to.
};

// Work requests of one queue pair that may be in flight.
inline constexpr std::uint32_t message_depth = 64;
inline constexpr std::uint32_t transfer_depth_per_queue_pair = 32;
// A message of a few frames travels inside its work request: the device need not fetch it.
inline constexpr std::uint32_t inline_bytes_wanted = 220;
// Messages that one peer may have in flight.
inline constexpr std::uint32_t window_max = 32;

// How a queue pair retries: seven times; without limit and 0.64 ms apart if the receiver has no
// buffer (IBTA 9.7.5.2.8): such a receiver is slow, and heartbeats find a dead one.
inline constexpr std::uint8_t tries = 7;
inline constexpr std::uint8_t rnr_tries = 7;
inline constexpr std::uint8_t rnr_pause = 12;

}  // namespace weft::na::verbs
