// One RDMA device as one endpoint has it open: its protection domain, one completion queue for
// everything, one shared queue of receive buffers, and the registered memory that messages are in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <weft/result.h>

#include "na/economies.h"
#include "na/verbs/ledger.h"
#include "na/verbs/message_memory.h"
#include "na/verbs/rdma.h"

namespace weft::na::verbs {

// What to build an endpoint's card with.
struct CardOptions {
    std::uint32_t send_slots = 0;
    std::uint32_t receive_slots = 0;
    std::size_t message_bytes = 0;
    std::size_t peers_max = 0;
    bool sleeps = true;
    Economies economies;
};

// What a queue pair is for.
enum class LaneRole : std::uint8_t {
    messages,  // SEND, both ways.
    asking,    // READ and WRITE of ours; nobody may access ours through it.
    serving,   // Those of a peer.
};

// What a device says of itself.
struct Trouble {
    enum class About : std::uint8_t {
        one_lane,    // Whose completions or connection tell it, too.
        everything,  // Nothing that is open works any more.
        the_rest,
    };
    About about = About::the_rest;
    std::string words;
};

// Thread: its endpoint's owner.
class Card {
  public:
    // `device`: as rdma_cm or ibv_get_device_list() gave it. Errors: UNAVAILABLE,
    // RESOURCE_EXHAUSTED, with how to mend it.
    static Result<std::unique_ptr<Card>> open(ibv_device* device, const CardOptions& options);

    std::string name() const { return ::ibv_get_device_name(context_->device); }
    bool is_behind(const ibv_context* other) const;
    // Whose windows of messages its queue of completions has room for.
    std::size_t peers_max() const { return peers_max_; }

    // Errors: RESOURCE_EXHAUSTED.
    Result<Owned<ibv_qp>> make_queue_pair(LaneRole role);
    // Memory that `access` (IBV_ACCESS_...) is granted to. Errors: RESOURCE_EXHAUSTED, with how to
    // mend it.
    Result<Owned<ibv_mr>> register_memory(Bytes memory, int access);

    // Links the requests and gives them to the card: one list, one doorbell. 0, or an errno: then
    // some of them may be with the card, and the queue pair is good for nothing.
    int post_sends(ibv_qp& pair, std::span<ibv_send_wr> requests);
    // Gives the buffers of `slots` to the card, in one list.
    void post_receives(std::span<const std::uint32_t> slots);
    // In the ledger: a message with content came, into that slot.
    void count_message(std::uint32_t slot) {
        ++ledger.payload_writes;
        note_page(receives_, receives_.at(slot));
    }
    // Returns how many were written.
    std::size_t poll(std::span<ibv_wc> completions);
    // Asks for a wake-up by the next completion. False: one is there already.
    bool arm();
    // Takes wake-ups from wait_fd().
    void take_wakes();
    int wait_fd() const { return channel_ ? channel_->fd : -1; }
    int trouble_fd() const { return context_->async_fd; }
    // The next word of the device about itself; nothing: no more.
    std::optional<Trouble> trouble();

    MessageMemory& sends() { return sends_; }
    MessageMemory& receives() { return receives_; }
    std::uint32_t send_key() const { return send_mr_->lkey; }
    std::uint32_t inline_bytes_max() const { return inline_bytes_max_; }
    std::uint32_t reads_max() const { return reads_max_; }
    std::size_t transfer_bytes_max() const { return transfer_bytes_max_; }

    Ledger ledger;

  private:
    Card() = default;
    Status open_all(ibv_device* device, const CardOptions& options);
    Status open_device(ibv_device* device);
    Status open_domain();
    Status open_queues(const CardOptions& options);
    Status open_messages(const CardOptions& options);
    ibv_cq* make_completions(std::uint32_t depth);
    ibv_pd* queue_domain() const { return of_thread_ ? of_thread_.get() : domain_.get(); }
    void count(const ibv_qp& pair, std::span<const ibv_send_wr> requests);
    void note_page(MessageMemory& memory, const std::byte* message) {
        if (memory.misses_page(message)) ++ledger.page_misses;
    }

    Owned<ibv_context> context_;
    ibv_device_attr limits_{};
    Owned<ibv_pd> domain_;
    Owned<ibv_td> thread_;     // What belongs to this thread alone: the driver takes no lock.
    Owned<ibv_pd> of_thread_;  // The domain of queues that do. Both empty: it can't do that.
    Owned<ibv_comp_channel> channel_;
    Owned<ibv_cq> queue_;
    Owned<ibv_srq> shared_;
    MessageMemory sends_;
    MessageMemory receives_;
    Owned<ibv_mr> send_mr_;
    Owned<ibv_mr> receive_mr_;
    std::uint32_t receive_slots_ = 0;
    std::uint32_t inline_bytes_max_ = 0;
    std::uint32_t reads_max_ = 1;
    std::size_t transfer_bytes_max_ = 0;
    std::size_t peers_max_ = 0;
    std::optional<ibv_wc> early_;  // Read by arm().
    Economies economies_;
    std::uint32_t last_pair_ = 0;  // That was posted to.
};

// Work requests of one queue pair that may be under way.
inline constexpr std::uint32_t message_depth = 64;
inline constexpr std::uint32_t transfer_depth_of_lane = 32;
// A message of a few frames goes inside its work request: the card need not fetch it.
inline constexpr std::uint32_t inline_bytes_wanted = 220;
// Of messages, that one peer may have under way.
inline constexpr std::uint32_t credits_most = 32;

// How a queue pair tries: seven times; where the receiver has no buffer for ever, 0.64 ms apart
// (IBTA 9.7.5.2.8): it is slow, and heartbeats find one that is dead.
inline constexpr std::uint8_t tries = 7;
inline constexpr std::uint8_t rnr_tries = 7;
inline constexpr std::uint8_t rnr_pause = 12;

}  // namespace weft::na::verbs
