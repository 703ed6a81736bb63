// Traffic between two queue pairs: work requests are carried out, delayed, refused, flushed.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "support/fake_verbs_world.h"

namespace weft::test::fake {

// How a work request ended; neither done nor failed: it waits.
struct Outcome {
    bool is_done = false;
    std::optional<ibv_wc_status> failure;
    bool is_for_link = false;
};
static constexpr Outcome done{true, std::nullopt, false};
static constexpr Outcome waits_for_buffer{};
static constexpr Outcome waits_for_link{false, std::nullopt, true};
static Outcome failed(ibv_wc_status status) { return {false, status, false}; }

// Only the fields that the specification guarantees for a failure are valid: the others get values
// that expose a reader that uses them.
static ibv_wc blank(std::uint64_t id, ibv_wc_status status, const Pair& pair) {
    ibv_wc wc{};
    wc.wr_id = id;
    wc.status = status;
    wc.qp_num = pair.qp_num;
    if (status == IBV_WC_SUCCESS) return wc;
    wc.opcode = IBV_WC_TSO;
    wc.byte_len = 0xffffffff;
    wc.imm_data = 0xffffffff;
    wc.vendor_err = 0xfa;
    return wc;
}

static ibv_wc_opcode opcode_of(ibv_wr_opcode opcode) {
    switch (opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
        case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
        default: return IBV_WC_SEND;
    }
}

void complete(Pair& pair, const Work& work, ibv_wc_status status) {
    const bool is_good = status == IBV_WC_SUCCESS;
    if (is_good && !pair.signals_all && !(work.request.send_flags & IBV_SEND_SIGNALED)) return;
    Completion completion{blank(work.request.wr_id, status, pair), &pair, true, work.sequence};
    if (is_good) completion.wc.opcode = opcode_of(work.request.opcode);
    give(pair.send_cq, completion);
}

void complete(Pair& pair, const Receive& receive, ibv_wc_status status) {
    give(pair.recv_cq, {blank(receive.id, status, pair), &pair, false, 0});
}

static void tell_of(Pair& pair, ibv_event_type what) {
    ibv_async_event event{};
    event.event_type = what;
    event.element.qp = &pair;
    tell(pair.context, event);
}

void break_pair(Pair& pair) {
    if (pair.state == IBV_QPS_ERR) return;
    pair.state = IBV_QPS_ERR;
    for (const Work& work : std::exchange(pair.work, {})) {
        complete(pair, work, IBV_WC_WR_FLUSH_ERR);
    }
    for (const Receive& receive : std::exchange(pair.receives, {})) {
        complete(pair, receive, IBV_WC_WR_FLUSH_ERR);
    }
    if (pair.srq) tell_of(pair, IBV_EVENT_QP_LAST_WQE_REACHED);
    unstall(pair);
}

// The region of a key, if it holds all of the range and grants all these rights to `pair`.
static Region* find(const Pair& pair, std::uint32_t key, std::uint64_t address, std::uint64_t bytes,
                    unsigned access) {
    const auto found = world().regions.find(key);
    if (found == world().regions.end()) return nullptr;
    Region& region = *found->second;
    const auto start = reinterpret_cast<std::uintptr_t>(region.addr);
    const bool is_in =
        address >= start && bytes <= region.length && address - start <= region.length - bytes;
    const bool is_own =
        static_cast<Domain*>(region.pd)->base() == static_cast<Domain*>(pair.pd)->base();
    return is_in && is_own && (region.access & access) == access ? &region : nullptr;
}

static bool may_use(const Pair& pair, const std::vector<ibv_sge>& pieces, unsigned access) {
    return std::ranges::all_of(pieces, [&](const ibv_sge& piece) {
        return piece.length == 0 || find(pair, piece.lkey, piece.addr, piece.length, access);
    });
}

// From the program's memory, or from the work request itself.
static void gather(const Work& work, std::byte* to) {
    if (work.request.send_flags & IBV_SEND_INLINE) {
        std::ranges::copy(work.inlined, to);
        return;
    }
    for (const ibv_sge& piece : work.pieces) {
        if (piece.length == 0) continue;
        std::memmove(to, reinterpret_cast<const void*>(piece.addr), piece.length);
        to += piece.length;
    }
}

static void scatter(const std::byte* from, std::uint64_t bytes, const std::vector<ibv_sge>& to) {
    for (const ibv_sge& piece : to) {
        const std::uint64_t part = std::min<std::uint64_t>(bytes, piece.length);
        if (part == 0) continue;
        std::memmove(reinterpret_cast<void*>(piece.addr), from, part);
        from += part;
        bytes -= part;
    }
}

// A buffer for a message that arrives at `to`; the caller owns it.
static std::optional<Receive> take_receive(Pair& to) {
    auto& from = to.srq ? static_cast<Shared*>(to.srq)->receives : to.receives;
    if (from.empty() || is_starved(to.context)) return std::nullopt;
    Receive receive = std::move(from.front());
    from.pop_front();
    return receive;
}

static ibv_wc arrival(const Pair& from, const Pair& to, const Work& work, std::uint64_t id,
                      std::uint64_t bytes) {
    ibv_wc wc = blank(id, IBV_WC_SUCCESS, to);
    const bool is_write = work.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    wc.opcode = is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    wc.byte_len = static_cast<std::uint32_t>(bytes);
    wc.src_qp = from.qp_num;
    if (work.request.opcode != IBV_WR_SEND) {
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.imm_data = work.request.imm_data;
    }
    return wc;
}

static Outcome without_buffer(const Pair& from) {
    return from.attr.rnr_retry == 7 ? waits_for_buffer : failed(IBV_WC_RNR_RETRY_EXC_ERR);
}

static Outcome send(Pair& from, Pair& to, const Work& work) {
    const std::uint64_t bytes = bytes_of(work.pieces);
    const auto receive = take_receive(to);
    if (!receive) return without_buffer(from);
    if (bytes > bytes_of(receive->pieces)) {
        complete(to, *receive, IBV_WC_LOC_LEN_ERR);
        break_pair(to);
        return failed(IBV_WC_REM_INV_REQ_ERR);
    }
    if (!may_use(to, receive->pieces, IBV_ACCESS_LOCAL_WRITE)) {
        complete(to, *receive, IBV_WC_LOC_PROT_ERR);
        break_pair(to);
        return failed(IBV_WC_REM_OP_ERR);
    }
    std::vector<std::byte> on_the_way(bytes);
    gather(work, on_the_way.data());
    scatter(on_the_way.data(), bytes, receive->pieces);
    give(to.recv_cq, {arrival(from, to, work, receive->id, bytes), &to, false, 0});
    return done;
}

// The peer has no right to access the memory, or the queue pair does not allow the operation.
static Outcome refuse(Pair& to, ibv_wc_status status) {
    tell_of(to, status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
    break_pair(to);
    return failed(status);
}

static Outcome access_memory(Pair& from, Pair& to, const Work& work) {
    const bool is_read = work.request.opcode == IBV_WR_RDMA_READ;
    const unsigned needed = is_read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    const auto& rdma = work.request.wr.rdma;
    const std::uint64_t bytes = bytes_of(work.pieces);
    if ((to.attr.qp_access_flags & needed) == 0) return refuse(to, IBV_WC_REM_INV_REQ_ERR);
    if (is_read && from.attr.max_rd_atomic > to.attr.max_dest_rd_atomic) {
        return refuse(to, IBV_WC_REM_INV_REQ_ERR);
    }
    if (bytes != 0 && !find(to, rdma.rkey, rdma.remote_addr, bytes, needed)) {
        return refuse(to, IBV_WC_REM_ACCESS_ERR);
    }
    std::optional<Receive> receive;
    if (work.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        receive = take_receive(to);
        if (!receive) return without_buffer(from);
    }
    auto* const theirs = reinterpret_cast<std::byte*>(rdma.remote_addr);
    if (is_read) {
        scatter(theirs, bytes, work.pieces);
    } else if (bytes != 0) {
        gather(work, theirs);
    }
    if (receive) give(to.recv_cq, {arrival(from, to, work, receive->id, bytes), &to, false, 0});
    return done;
}

// The other end, if it exists and is connected to this one.
static Pair* partner_of(const Pair& from) {
    const auto found = world().pairs.find(from.attr.dest_qp_num);
    if (found == world().pairs.end()) return nullptr;
    Pair& to = *found->second;
    const bool is_ready = to.state == IBV_QPS_RTR || to.state == IBV_QPS_RTS;
    return is_ready && to.attr.dest_qp_num == from.qp_num && to.attr.rq_psn == from.attr.sq_psn
               ? &to
               : nullptr;
}

static std::optional<ibv_wc_status> take_fault(const Pair& pair) {
    auto& faults = world().faults.work;
    const auto found = std::ranges::find_if(faults, [&](const Fault& fault) {
        return fault.lane == pair.lane() && (fault.card < 0 || fault.card == card_of(pair.context));
    });
    if (found == faults.end()) return std::nullopt;
    const ibv_wc_status status = found->status;
    faults.erase(found);
    return status;
}

static Outcome carry_out(Pair& from, const Work& work) {
    Pair* const to = partner_of(from);
    if (const auto fault = take_fault(from)) {
        const bool is_theirs = *fault == IBV_WC_REM_ACCESS_ERR || *fault == IBV_WC_REM_OP_ERR ||
                               *fault == IBV_WC_REM_INV_REQ_ERR;
        if (is_theirs && to) return refuse(*to, *fault);
        return failed(*fault);
    }
    const Faults& faults = world().faults;
    if (faults.is_cut || faults.is_broken || faults.is_port_down || !to) return waits_for_link;
    if (bytes_of(work.pieces) > world().limits.message_bytes_max) return failed(IBV_WC_LOC_LEN_ERR);
    const bool is_read = work.request.opcode == IBV_WR_RDMA_READ;
    const bool is_inline = (work.request.send_flags & IBV_SEND_INLINE) != 0;
    if (!is_inline && !may_use(from, work.pieces, is_read ? IBV_ACCESS_LOCAL_WRITE : 0)) {
        return failed(IBV_WC_LOC_PROT_ERR);
    }
    const bool is_send =
        work.request.opcode == IBV_WR_SEND || work.request.opcode == IBV_WR_SEND_WITH_IMM;
    return is_send ? send(from, *to, work) : access_memory(from, *to, work);
}

void unstall(Pair& pair) {
    if (std::exchange(pair.is_stalled, false)) std::erase(world().stalled, &pair);
}

static void fail_first(Pair& pair, ibv_wc_status status) {
    const Work first = std::move(pair.work.front());
    pair.work.pop_front();
    complete(pair, first, status);
    break_pair(pair);
}

void advance(Pair& pair) {
    while (pair.state == IBV_QPS_RTS && !pair.work.empty()) {
        const Outcome outcome = carry_out(pair, pair.work.front());
        if (pair.work.empty()) return;  // The queue pair sends to itself, and has broken itself.
        if (outcome.failure) return fail_first(pair, *outcome.failure);
        if (!outcome.is_done) {
            pair.waits_for_link = outcome.is_for_link;
            if (!std::exchange(pair.is_stalled, true)) world().stalled.push_back(&pair);
            return;
        }
        complete(pair, pair.work.front(), IBV_WC_SUCCESS);
        pair.work.pop_front();
    }
}

void advance_stalled() {
    for (Pair* pair : std::exchange(world().stalled, {})) {
        pair->is_stalled = false;
        advance(*pair);
    }
}

// Each packet is sent 1 + retry_cnt times, the queue pair's timeout apart (specification
// 9.7.6.1.3).
static Duration progress_interval_of(const Pair& pair) {
    if (pair.attr.timeout == 0) return Duration::max();
    const Duration timeout = Duration(4096) * (std::int64_t{1} << pair.attr.timeout);
    return timeout * (pair.attr.retry_cnt + 1);
}

void expire_stalled(Duration time) {
    for (Pair* pair : std::vector(world().stalled)) {
        if (!pair->waits_for_link || pair->work.empty()) continue;
        pair->work.front().tried += time;
        if (pair->work.front().tried < progress_interval_of(*pair)) continue;
        unstall(*pair);
        fail_first(*pair, IBV_WC_RETRY_EXC_ERR);
    }
}

}  // namespace weft::test::fake
