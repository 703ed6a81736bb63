// The fake device itself: it behaves as the specification of devices requires, without which the
// other tests would prove little.
#include <poll.h>

#include <array>

#include "support/catch.h"
#include "support/fake_verbs.h"
#include "support/na_providers.h"

using namespace weft;
using namespace weft::test;
using na::verbs::Owned;

namespace {

bool is_readable(int fd) {
    pollfd watched{fd, POLLIN, 0};
    return ::poll(&watched, 1, 0) == 1;
}

// One side: a queue pair with memory.
struct Side {
    static constexpr std::uint32_t depth = 4;
    explicit Side(bool shares = false, int room = 16) {
        int count = 0;
        ibv_device** devices = ::ibv_get_device_list(&count);
        context.reset(::ibv_open_device(devices[0]));
        ::ibv_free_device_list(devices);
        REQUIRE((na::verbs::set_nonblocking(context->async_fd)));
        domain.reset(::ibv_alloc_pd(context.get()));
        channel.reset(::ibv_create_comp_channel(context.get()));
        REQUIRE(na::verbs::set_nonblocking(channel->fd));
        queue.reset(::ibv_create_cq(context.get(), room, nullptr, channel.get(), 0));
        region.reset(::ibv_reg_mr(domain.get(), memory.data(), memory.size(), access));
        ibv_srq_init_attr shared_attr{};
        shared_attr.attr = {8, 1, 0};
        if (shares) shared.reset(::ibv_create_srq(domain.get(), &shared_attr));
        pair.reset(make_pair());
        REQUIRE((queue && region && pair));
    }
    ibv_qp* make_pair() {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = queue.get();
        attr.srq = shared.get();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {depth, 4, 1, 1, 32};
        return ::ibv_create_qp(domain.get(), &attr);
    }
    int to(ibv_qp_state state, int mask, const ibv_qp_attr& told = {}) {
        ibv_qp_attr attr = told;
        attr.qp_state = state;
        return ::ibv_modify_qp(pair.get(), &attr, mask | IBV_QP_STATE);
    }
    static constexpr int init_mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    static constexpr int ready_mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                      IBV_QP_MIN_RNR_TIMER;
    static constexpr int send_mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    void join(const Side& other, unsigned qp_access, std::uint8_t rnr_retry = 7) {
        ibv_qp_attr attr{};
        attr.port_num = 1;
        attr.qp_access_flags = qp_access;
        REQUIRE(to(IBV_QPS_INIT, init_mask, attr) == 0);
        attr.dest_qp_num = other.pair->qp_num;
        attr.max_dest_rd_atomic = 4;
        REQUIRE(to(IBV_QPS_RTR, ready_mask, attr) == 0);
        attr = {};
        attr.timeout = 14;
        attr.retry_cnt = 7;
        attr.rnr_retry = rnr_retry;
        attr.max_rd_atomic = 4;
        REQUIRE(to(IBV_QPS_RTS, send_mask, attr) == 0);
    }
    int post(ibv_wr_opcode opcode, unsigned flags = IBV_SEND_SIGNALED, std::uint32_t bytes = 8,
             std::uint64_t address = 0, std::uint32_t key = 0) {
        ibv_sge piece{reinterpret_cast<std::uintptr_t>(memory.data()), bytes, region->lkey};
        ibv_send_wr request{};
        request.wr_id = ++posted;
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = opcode;
        request.send_flags = flags;
        request.imm_data = 42;
        request.wr.rdma.remote_addr = address;
        request.wr.rdma.rkey = key;
        ibv_send_wr* refused = nullptr;
        return ::ibv_post_send(pair.get(), &request, &refused);
    }
    int receive(std::uint64_t id, std::uint32_t bytes = 64) {
        ibv_sge piece{reinterpret_cast<std::uintptr_t>(memory.data()) + 512, bytes, region->lkey};
        ibv_recv_wr request{id, nullptr, &piece, 1};
        ibv_recv_wr* refused = nullptr;
        return shared ? ::ibv_post_srq_recv(shared.get(), &request, &refused)
                      : ::ibv_post_recv(pair.get(), &request, &refused);
    }
    // The status of the next completion, or -1; `id` is its work request.
    int next(std::uint64_t* id = nullptr) {
        ibv_wc wc{};
        if (::ibv_poll_cq(queue.get(), 1, &wc) != 1) return -1;
        if (id) *id = wc.wr_id;
        return wc.status;
    }
    int next_event() {
        ibv_async_event event{};
        if (::ibv_get_async_event(context.get(), &event) != 0) return -1;
        ::ibv_ack_async_event(&event);
        return event.event_type;
    }
    std::uint64_t at(std::size_t offset) const {
        return reinterpret_cast<std::uintptr_t>(memory.data()) + offset;
    }

    static constexpr unsigned access =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    std::array<std::byte, 1024> memory{};
    std::uint64_t posted = 0;
    Owned<ibv_context> context;
    Owned<ibv_pd> domain;
    Owned<ibv_comp_channel> channel;
    Owned<ibv_cq> queue;
    Owned<ibv_mr> region;
    Owned<ibv_srq> shared;
    Owned<ibv_qp> pair;
};

constexpr unsigned all_access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

}  // namespace

TEST_CASE("fake verbs: a queue pair accepts only transitions with all their attributes") {
    FakeVerbs fake;
    Side side;
    CHECK(side.post(IBV_WR_SEND) == EINVAL);
    CHECK(side.to(IBV_QPS_RTR, Side::ready_mask) == EINVAL);
    CHECK(side.to(IBV_QPS_ERR, 0) == EINVAL);
    CHECK(side.to(IBV_QPS_INIT, IBV_QP_PORT) == EINVAL);
    CHECK(side.to(IBV_QPS_INIT, Side::init_mask) == 0);
    CHECK(side.to(IBV_QPS_RTS, Side::send_mask) == EINVAL);
    CHECK(side.to(IBV_QPS_RTR, Side::ready_mask) == 0);
    CHECK(side.post(IBV_WR_SEND) == EINVAL);
    CHECK(side.to(IBV_QPS_RTS, Side::send_mask) == 0);
    CHECK(side.to(IBV_QPS_ERR, 0) == 0);
    CHECK(side.post(IBV_WR_SEND, 0) == 0);
    CHECK(side.next() == IBV_WC_WR_FLUSH_ERR);
    CHECK(side.to(IBV_QPS_RESET, 0) == 0);
}

TEST_CASE("fake verbs: a polled completion, and nothing before it, frees send queue entries") {
    FakeVerbs fake;
    Side a, b;
    a.join(b, 0);
    b.join(a, 0);
    for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(b.receive(i) == 0);
    CHECK(b.receive(9) == ENOMEM);
    for (std::uint32_t i = 0; i < Side::depth; ++i) {
        CHECK(a.post(IBV_WR_SEND, i == 1 ? unsigned{IBV_SEND_SIGNALED} : 0) == 0);
    }
    CHECK(a.post(IBV_WR_SEND, 0) == ENOMEM);
    std::uint64_t id = 0;
    CHECK(a.next(&id) == IBV_WC_SUCCESS);
    CHECK(id == 2);  // The only signaled one; it completes the one before it, too.
    CHECK(a.next() == -1);
    CHECK(a.post(IBV_WR_SEND, IBV_SEND_INLINE, 33) == EINVAL);
    CHECK(a.post(IBV_WR_RDMA_READ, IBV_SEND_INLINE) == EINVAL);
}

TEST_CASE("fake verbs: a receiver without buffers delays a sender, or exhausts its retries") {
    for (const std::uint8_t tries : {7, 3}) {
        FakeVerbs fake;
        Side a, b(true);
        a.join(b, 0, tries);
        b.join(a, 0, tries);
        CHECK(a.post(IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED | IBV_SEND_INLINE) == 0);
        CHECK(a.next() == (tries == 7 ? -1 : int{IBV_WC_RNR_RETRY_EXC_ERR}));
        fake.pass(1h);  // The link is up, so time alone changes nothing.
        REQUIRE(b.receive(5) == 0);
        std::uint64_t id = 0;
        CHECK(a.next() == (tries == 7 ? int{IBV_WC_SUCCESS} : -1));
        CHECK(b.next(&id) == (tries == 7 ? int{IBV_WC_SUCCESS} : -1));
        if (tries == 7) CHECK(id == 5);
    }
}

TEST_CASE("fake verbs: access is checked by key, range and right, and both ends see a refusal") {
    const auto judge = [](unsigned pair_access, ibv_wr_opcode opcode, std::size_t offset,
                          std::uint32_t bytes, std::uint32_t key_off) {
        FakeVerbs fake;
        Side a, b;
        a.join(b, 0);
        b.join(a, pair_access);
        b.memory[512] = std::byte{9};
        REQUIRE(a.post(opcode, IBV_SEND_SIGNALED, bytes, b.at(offset), b.region->rkey + key_off) ==
                0);
        REQUIRE(a.post(opcode, 0, bytes, b.at(offset), b.region->rkey) == 0);
        const int status = a.next();
        if (status == IBV_WC_SUCCESS) return status;
        CHECK(a.next() == IBV_WC_WR_FLUSH_ERR);  // Although it is unsignaled.
        CHECK(is_readable(b.context->async_fd));
        CHECK(b.next_event() ==
              (status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR));
        CHECK(b.post(IBV_WR_SEND, 0) == 0);
        CHECK(b.next() == IBV_WC_WR_FLUSH_ERR);
        return status;
    };
    CHECK(judge(all_access, IBV_WR_RDMA_READ, 512, 8, 0) == IBV_WC_SUCCESS);
    CHECK(judge(all_access, IBV_WR_RDMA_WRITE, 1016, 8, 0) == IBV_WC_SUCCESS);
    CHECK(judge(all_access, IBV_WR_RDMA_WRITE, 1017, 8, 0) == IBV_WC_REM_ACCESS_ERR);
    CHECK(judge(all_access, IBV_WR_RDMA_READ, 512, 8, 999) == IBV_WC_REM_ACCESS_ERR);
    CHECK(judge(IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_READ, 0, 8, 0) == IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("fake verbs: deregistered memory can't be accessed, by either end") {
    FakeVerbs fake;
    Side a, b;
    a.join(b, 0);
    b.join(a, all_access);
    fake.cut();
    REQUIRE(a.post(IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 8, b.at(0), b.region->rkey) == 0);
    a.region.reset();
    fake.restore();
    CHECK(a.next() == IBV_WC_LOC_PROT_ERR);
}

TEST_CASE("fake verbs: a full completion queue fails, and its owner gets an event") {
    FakeVerbs fake;
    Side a(false, 2), b;
    a.join(b, 0);
    b.join(a, 0);
    for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(b.receive(i) == 0);
    for (int i = 0; i < 3; ++i) REQUIRE(a.post(IBV_WR_SEND) == 0);
    CHECK(a.next_event() == IBV_EVENT_CQ_ERR);
    CHECK(a.next() == -1);
}

TEST_CASE("fake verbs: each arming gives one wakeup, and earlier completions give none") {
    FakeVerbs fake;
    Side a, b;
    a.join(b, 0);
    b.join(a, 0);
    for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(b.receive(i) == 0);
    REQUIRE(a.post(IBV_WR_SEND, 0) == 0);
    CHECK_FALSE(is_readable(b.channel->fd));
    REQUIRE(::ibv_req_notify_cq(b.queue.get(), 0) == 0);
    CHECK_FALSE(is_readable(b.channel->fd));
    REQUIRE(a.post(IBV_WR_SEND, 0) == 0);
    REQUIRE(a.post(IBV_WR_SEND, 0) == 0);
    CHECK(is_readable(b.channel->fd));
    ibv_cq* queue = nullptr;
    void* unused = nullptr;
    REQUIRE(::ibv_get_cq_event(b.channel.get(), &queue, &unused) == 0);
    CHECK(queue == b.queue.get());
    ::ibv_ack_cq_events(queue, 1);
    CHECK(::ibv_get_cq_event(b.channel.get(), &queue, &unused) == -1);
}

TEST_CASE("fake verbs: destroying a queue pair drops its completions and their buffers") {
    FakeVerbs fake;
    Side a, b(true);
    a.join(b, 0);
    b.join(a, 0);
    REQUIRE(b.receive(1) == 0);
    REQUIRE(b.receive(2) == 0);
    REQUIRE(a.post(IBV_WR_SEND, 0) == 0);
    CHECK(fake.receives_posted(1) == 1);
    b.pair.reset(b.make_pair());
    CHECK(b.next() == -1);
    CHECK(fake.receives_posted(1) == 1);
}

TEST_CASE("fake verbs: objects destroyed in the wrong order are reported") {
    FakeVerbs fake;
    Side a;
    CHECK(::ibv_destroy_cq(a.queue.get()) == EBUSY);
    CHECK(::ibv_dealloc_pd(a.domain.get()) == EBUSY);
    CHECK(fake.complaints().size() == 2);
}

TEST_CASE("fake verbs: thread domains work, and gids belong to their ports") {
    FakeVerbs fake;
    Side a;
    ibv_td_init_attr thread_attr{};
    ibv_td* thread = ::ibv_alloc_td(a.context.get(), &thread_attr);
    REQUIRE(thread);
    ibv_parent_domain_init_attr attr{};
    attr.pd = a.domain.get();
    attr.td = thread;
    {
        const Owned<ibv_pd> child(::ibv_alloc_parent_domain(a.context.get(), &attr));
        REQUIRE(child);
        CHECK(fake.counts().domains == 2);
    }
    CHECK(::ibv_dealloc_td(thread) == 0);
    ibv_gid gid{};
    CHECK(::ibv_query_gid(a.context.get(), 1, 0, &gid) == 0);
    CHECK(::ibv_query_gid(a.context.get(), 2, 0, &gid) != 0);
    ibv_gid_entry entries[8];
    CHECK(::ibv_query_gid_table(a.context.get(), entries, 8, 0) == 2);
}
