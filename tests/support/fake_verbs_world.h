// The state of the fake device (fake_verbs.h), for the files that define functions of rdma-core.
// Each object of rdma-core is the base of an object of the fake.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "support/fake_verbs.h"

// The header defines macros that hide functions of the fake.
#undef ibv_reg_mr
#undef ibv_query_port
#undef ibv_get_device_list

namespace weft::test::fake {

// A descriptor that is readable while there is an event to take.
class Bell {
  public:
    Bell();
    ~Bell();
    Bell(const Bell&) = delete;
    Bell& operator=(const Bell&) = delete;
    int fd() const { return fd_; }
    void ring() const;
    // Waits, unless the descriptor is non-blocking. False: no event (errno).
    bool take() const;
    void take_back() const;  // Cancels a ring that was not taken.

  private:
    int fd_ = -1;
};

struct Context : verbs_context {
    Context() : verbs_context{} {}
    int device = 0;
    bool is_of_cm = false;
    Bell bell;
    std::deque<ibv_async_event> events;
    int objects = 0;  // Objects created from it.
};
inline Context& of(ibv_context* context) { return static_cast<Context&>(*verbs_get_ctx(context)); }

struct Domain : ibv_pd {
    Domain() : ibv_pd{} {}
    Domain* parent = nullptr;  // Of a parent domain: the domain in which memory is registered.
    int objects = 0;
    const Domain* base() const { return parent ? parent : this; }
};

struct Region : ibv_mr {
    Region() : ibv_mr{} {}
    unsigned access = 0;
};

struct Channel : ibv_comp_channel {
    Channel() : ibv_comp_channel{} {}
    Bell bell;
    std::deque<ibv_cq*> wakes;
};

struct Pair;

struct Completion {
    ibv_wc wc{};
    Pair* pair = nullptr;
    bool is_send = false;
    std::uint32_t sequence = 0;
};

struct Queue : ibv_cq {
    Queue() : ibv_cq{} {}
    std::deque<Completion> completions;
    std::size_t fullest = 0;
    bool armed = false;
    bool for_solicited = false;
    bool is_lost = false;  // The queue has overflowed.
    int pairs = 0;
    int unacknowledged = 0;
    Domain* domain = nullptr;  // The domain that it was created in, if any.
};

// The queue overflows, and its owner is notified.
void lose(Queue& queue);

struct Receive {
    std::uint64_t id = 0;
    std::vector<ibv_sge> pieces;
};

struct Shared : ibv_srq {
    Shared() : ibv_srq{} {}
    std::uint32_t room = 0;
    std::deque<Receive> receives;
    int pairs = 0;
    int unacknowledged = 0;
};

// A work request that was posted and has not been carried out.
struct Work {
    ibv_send_wr request{};
    std::vector<ibv_sge> pieces;
    std::vector<std::byte> inlined;
    std::uint32_t sequence = 0;
    Duration tried{};
};

struct Pair : ibv_qp {
    Pair() : ibv_qp{} {}
    ibv_qp_attr attr{};
    ibv_qp_cap cap{};
    bool signals_all = false;
    std::deque<Work> work;
    std::deque<Receive> receives;  // Used without a shared queue.
    std::uint32_t posted = 0;      // Work requests, in total;
    std::uint32_t room_back = 0;   // those with released room, by completions read.
    bool is_stalled = false;       // In World::stalled.
    bool waits_for_link = false;
    int unacknowledged = 0;
    FakeLane lane() const { return srq ? FakeLane::messages : FakeLane::transfers; }
};

struct Fault {
    FakeLane lane;
    ibv_wc_status status;
    int card;
};

struct Faults {
    int registrations_before = -1, registration_error = 0;
    int deregistrations = 0, deregistration_error = 0;
    int destroys = 0, destroy_error = 0;
    int refusals = 0, refusal_error = 0, refusal_card = FakeVerbs::any_card;
    std::vector<Fault> work;
    int stale = 0, routes = 0, migrations = 0;
    int rejection = 28;     // A rejection by the consumer (InfiniBand specification, 12.6.7.2).
    int starved_card = -2;  // None.
    bool is_cut = false, is_cm_cut = false, is_broken = false, is_port_down = false;
};

struct World {
    World();
    std::mutex mutex;
    FakeLimits limits;
    FakeCounts counts;
    Faults faults;
    std::vector<std::string> complaints;
    ibv_device devices[2]{};
    std::vector<Context*> contexts;  // Opened by the program, in order.
    std::unordered_map<std::uint32_t, Pair*> pairs;
    std::unordered_map<std::uint32_t, Region*> regions;
    std::vector<Pair*> stalled;
    std::size_t locked_bytes = 0;
    std::uint64_t registrations = 0, deregistrations = 0;  // Successful ones, ever.
    std::uint32_t last_number = 1000;  // Last number of a queue pair, key or connection.
    std::ptrdiff_t own_bytes = 0;
    std::uint64_t entries = 0;  // Functions that took the mutex.
};
World& world();

// Held by every function of the fake: the mutex, and the accounting of its own memory.
class Entry {
  public:
    Entry();
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

  private:
    std::unique_lock<std::mutex> lock_;
    std::ptrdiff_t before_;
};

// Destroys an object of the fake and counts it.
template <class T>
void destroy(T& object, int& count) {
    --count;
    delete &object;
}

void complain(const std::string& what);
void complain_if(bool is_wrong, const std::string& what);
int card_of(const ibv_context* context);  // -1: a context of rdma_cm.
bool is_starved(const ibv_context* context);

// fake_verbs_device.cc
Context* open_context(int device, bool for_cm);
std::optional<int> device_at(const std::string& host);
void tell(ibv_context* context, const ibv_async_event& event);
void forget_events(ibv_context* context, const void* object);
// Before an object is destroyed: drops its events, and waits for those that another thread has read
// and not acknowledged, as rdma-core does; a second at most. Call without an Entry.
void await_acknowledged(ibv_context* context, const void* object, const int& unacknowledged);

// Called by the header of rdma-core through a context's table.
int poll_cq(ibv_cq* queue, int count, ibv_wc* completions);
int req_notify_cq(ibv_cq* queue, int solicited_only);
int post_send(ibv_qp* pair, ibv_send_wr* list, ibv_send_wr** refused);
int post_recv(ibv_qp* pair, ibv_recv_wr* list, ibv_recv_wr** refused);
int post_srq_recv(ibv_srq* shared, ibv_recv_wr* list, ibv_recv_wr** refused);

// fake_verbs_queue.cc
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
void give(ibv_cq* queue, const Completion& completion);
void forget_completions(ibv_cq* queue, const Pair& pair);

// fake_verbs_wire.cc
void advance(Pair& pair);
void advance_stalled();
void unstall(Pair& pair);
// Moves it to the error state: posted work is flushed.
void break_pair(Pair& pair);
void expire_stalled(Duration time);
void complete(Pair& pair, const Work& work, ibv_wc_status status);
void complete(Pair& pair, const Receive& receive, ibv_wc_status status);

// fake_verbs_cm_words.cc: delayed messages arrive; are lost; the device is removed.
void cm_restore();
void cm_expire();
void cm_remove_device();

inline std::uint64_t bytes_of(std::span<const ibv_sge> pieces) {
    std::uint64_t bytes = 0;
    for (const ibv_sge& piece : pieces) bytes += piece.length;
    return bytes;
}

}  // namespace weft::test::fake
