// Queue pairs: their states, and the posting of work requests.
#include <algorithm>
#include <cerrno>

#include "support/fake_verbs_world.h"

namespace weft::test::fake {

static constexpr std::uint32_t pieces_max = 16;
static constexpr std::uint32_t work_max = 1 << 14;

// The attributes that a state change requires (InfiniBand specification, 11.2.5.2), besides the
// state.
static int needed_by(ibv_qp_state from, ibv_qp_state to) {
    if (to == IBV_QPS_INIT && from == IBV_QPS_RESET) {
        return IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    }
    if (to == IBV_QPS_RTR && from == IBV_QPS_INIT) {
        return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) {
        return IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC;
    }
    if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET)) return 0;
    return -1;  // No such state change.
}

static void take(ibv_qp_attr& own, const ibv_qp_attr& told, int mask) {
    if (mask & IBV_QP_ACCESS_FLAGS) own.qp_access_flags = told.qp_access_flags;
    if (mask & IBV_QP_DEST_QPN) own.dest_qp_num = told.dest_qp_num;
    if (mask & IBV_QP_RQ_PSN) own.rq_psn = told.rq_psn;
    if (mask & IBV_QP_SQ_PSN) own.sq_psn = told.sq_psn;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) own.max_dest_rd_atomic = told.max_dest_rd_atomic;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC) own.max_rd_atomic = told.max_rd_atomic;
    if (mask & IBV_QP_TIMEOUT) own.timeout = told.timeout;
    if (mask & IBV_QP_RETRY_CNT) own.retry_cnt = told.retry_cnt;
    if (mask & IBV_QP_RNR_RETRY) own.rnr_retry = told.rnr_retry;
    if (mask & IBV_QP_PORT) own.port_num = told.port_num;
}

static int why_not_posted(const Pair& pair, const ibv_send_wr& request) {
    Faults& faults = world().faults;
    if (faults.is_broken) return EIO;
    const int card = card_of(pair.context);
    if (faults.refusals > 0 && (faults.refusal_card < 0 || faults.refusal_card == card)) {
        --faults.refusals;
        return faults.refusal_error;
    }
    if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR) return EINVAL;
    if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > pair.cap.max_send_sge)
        return EINVAL;
    switch (request.opcode) {
        case IBV_WR_SEND:
        case IBV_WR_SEND_WITH_IMM:
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM: break;
        case IBV_WR_RDMA_READ:
            if ((request.send_flags & IBV_SEND_INLINE) || pair.attr.max_rd_atomic == 0)
                return EINVAL;
            break;
        default: return EOPNOTSUPP;
    }
    const std::span pieces(request.sg_list, static_cast<std::size_t>(request.num_sge));
    if ((request.send_flags & IBV_SEND_INLINE) && bytes_of(pieces) > pair.cap.max_inline_data) {
        return EINVAL;
    }
    return pair.posted - pair.room_back >= pair.cap.max_send_wr ? ENOMEM : 0;
}

static void take(Pair& pair, const ibv_send_wr& request) {
    Work work;
    work.request = request;
    work.request.next = nullptr;
    work.request.sg_list = nullptr;
    work.pieces.assign(request.sg_list, request.sg_list + request.num_sge);
    work.sequence = ++pair.posted;
    if (request.send_flags & IBV_SEND_INLINE) {
        for (const ibv_sge& piece : work.pieces) {
            const auto* from = reinterpret_cast<const std::byte*>(piece.addr);
            work.inlined.insert(work.inlined.end(), from, from + piece.length);
        }
    }
    if (pair.state == IBV_QPS_ERR) return complete(pair, work, IBV_WC_WR_FLUSH_ERR);
    pair.work.push_back(std::move(work));
}

int post_send(ibv_qp* to, ibv_send_wr* list, ibv_send_wr** refused) {
    const Entry entry;
    Pair& pair = *static_cast<Pair*>(to);
    int error = 0;
    for (; list; list = list->next) {
        error = why_not_posted(pair, *list);
        if (error != 0) {
            *refused = list;
            break;
        }
        take(pair, *list);
    }
    advance(pair);
    return error;
}

int post_recv(ibv_qp* to, ibv_recv_wr* list, ibv_recv_wr** refused) {
    const Entry entry;
    Pair& pair = *static_cast<Pair*>(to);
    for (; list; list = list->next) {
        if (pair.srq || pair.receives.size() >= pair.cap.max_recv_wr) {
            *refused = list;
            return pair.srq ? EINVAL : ENOMEM;
        }
        const Receive receive{list->wr_id, {list->sg_list, list->sg_list + list->num_sge}};
        if (pair.state == IBV_QPS_ERR) {
            complete(pair, receive, IBV_WC_WR_FLUSH_ERR);
        } else {
            pair.receives.push_back(receive);
        }
    }
    advance_stalled();
    return 0;
}

static int why_not_made(const ibv_qp_init_attr& attr) {
    const World& all = world();
    if (all.faults.is_broken) return EIO;
    if (attr.qp_type != IBV_QPT_RC) return EOPNOTSUPP;
    if (all.pairs.size() >= static_cast<std::size_t>(all.limits.pairs_max)) return ENOMEM;
    const bool is_possible = attr.cap.max_inline_data <= all.limits.inline_bytes_max &&
                             attr.cap.max_send_wr <= work_max && attr.cap.max_recv_wr <= work_max &&
                             attr.cap.max_send_sge <= pieces_max &&
                             attr.cap.max_recv_sge <= pieces_max;
    return is_possible ? 0 : EINVAL;
}

}  // namespace weft::test::fake

using namespace weft::test::fake;

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attr) {
    const Entry entry;
    if (const int error = why_not_made(*attr)) {
        errno = error;
        return nullptr;
    }
    auto* pair = new Pair;
    pair->context = domain->context;
    pair->qp_context = attr->qp_context;
    pair->pd = domain;
    pair->send_cq = attr->send_cq;
    pair->recv_cq = attr->recv_cq;
    pair->srq = attr->srq;
    pair->qp_num = ++world().last_number;
    pair->state = IBV_QPS_RESET;
    pair->qp_type = attr->qp_type;
    pair->cap = attr->cap;
    pair->signals_all = attr->sq_sig_all != 0;
    ++static_cast<Queue*>(pair->send_cq)->pairs;
    ++static_cast<Queue*>(pair->recv_cq)->pairs;
    if (pair->srq) ++static_cast<Shared*>(pair->srq)->pairs;
    ++static_cast<Domain*>(domain)->objects;
    world().pairs[pair->qp_num] = pair;
    ++world().counts.pairs;
    return pair;
}

int ibv_modify_qp(ibv_qp* changed, ibv_qp_attr* attr, int mask) {
    const Entry entry;
    Pair& pair = *static_cast<Pair*>(changed);
    if (world().faults.is_broken) return EIO;
    const bool is_step = (mask & IBV_QP_STATE) != 0;
    if (is_step) {
        const int needed = needed_by(pair.state, attr->qp_state);
        if (needed < 0 || (mask & needed) != needed) return EINVAL;
    }
    take(pair.attr, *attr, mask);
    if (!is_step) return 0;
    if (attr->qp_state == IBV_QPS_ERR) {
        break_pair(pair);
        return 0;
    }
    pair.state = attr->qp_state;
    if (pair.state == IBV_QPS_RESET) {
        pair.work.clear();
        pair.receives.clear();
        forget_completions(pair.send_cq, pair);
        forget_completions(pair.recv_cq, pair);
        pair.posted = pair.room_back = 0;
    }
    advance_stalled();
    return 0;
}

int ibv_query_qp(ibv_qp* asked, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
    const Entry entry;
    const Pair& pair = *static_cast<Pair*>(asked);
    *attr = pair.attr;
    attr->qp_state = attr->cur_qp_state = pair.state;
    attr->cap = pair.cap;
    *init = {pair.qp_context,         pair.send_cq, pair.recv_cq, pair.srq, pair.cap, pair.qp_type,
             pair.signals_all ? 1 : 0};
    return 0;
}

int ibv_destroy_qp(ibv_qp* ended) {
    Pair& pair = *static_cast<Pair*>(ended);
    await_acknowledged(pair.context, ended, pair.unacknowledged);
    const Entry entry;
    if (world().faults.destroys > 0) {
        --world().faults.destroys;
        return world().faults.destroy_error;
    }
    complain_if(pair.unacknowledged != 0, "a queue pair was destroyed with unacknowledged events");
    unstall(pair);
    forget_completions(pair.send_cq, pair);
    forget_completions(pair.recv_cq, pair);
    --static_cast<Queue*>(pair.send_cq)->pairs;
    --static_cast<Queue*>(pair.recv_cq)->pairs;
    if (pair.srq) --static_cast<Shared*>(pair.srq)->pairs;
    --static_cast<Domain*>(pair.pd)->objects;
    world().pairs.erase(pair.qp_num);
    destroy(pair, world().counts.pairs);
    return 0;
}

}  // extern "C"
