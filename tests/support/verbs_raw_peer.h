// A verbs peer that sends whatever a test needs: one connection, by rdma_cm, with a queue pair and
// receive buffers of its own. Works over the fake device and over real ones.
#pragma once

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "na/address.h"
#include "na/hello.h"
#include "na/socket_name.h"
#include "na/verbs/rdma.h"
#include "na/verbs/wire.h"
#include "support/catch.h"

namespace weft::test {

inline std::vector<std::byte> words_of(const na::verbs::ConnectData& connect_data) {
    std::vector<std::byte> words(na::verbs::connect_data_bytes);
    encode(connect_data, words);
    return words;
}

class VerbsRawPeer {
  public:
    enum class State { idle, asking, asked, connected, refused, unreachable, over };
    struct Message {
        std::uint32_t immediate = 0;
        std::vector<std::byte> bytes;
    };

    VerbsRawPeer() {
        int count = 0;
        ibv_device** devices = ::ibv_get_device_list(&count);
        REQUIRE(count > 0);
        context_.reset(::ibv_open_device(devices[0]));
        ::ibv_free_device_list(devices);
        channel_.reset(::rdma_create_event_channel());
        REQUIRE((context_ && channel_));
        REQUIRE(na::verbs::set_nonblocking(channel_->fd));
        domain_.reset(::ibv_alloc_pd(context_.get()));
        queue_.reset(::ibv_create_cq(context_.get(), 1024, nullptr, nullptr, 0));
        memory_.resize((buffers + 1) * buffer_bytes);
        region_.reset(::ibv_reg_mr(domain_.get(), memory_.data(), memory_.size(),
                                   static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE)));
        REQUIRE((domain_ && queue_ && region_));
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = queue_.get();
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {256, buffers, 1, 1, 0};
        pair_.reset(::ibv_create_qp(domain_.get(), &attr));
        REQUIRE(pair_);
    }

    // Starts connecting to `uri`; call step() until the state is final.
    void connect(const std::string& uri, ByteView words) {
        own_words_.assign(words.begin(), words.end());
        sockaddr_storage to = name_of(uri);
        id_.reset(make_id());
        REQUIRE(::rdma_resolve_addr(id_.get(), nullptr, reinterpret_cast<sockaddr*>(&to), 1000) ==
                0);
        state_ = State::asking;
    }
    // Listens; returns the URI.
    std::string listen(const std::string& uri) {
        sockaddr_storage at = name_of(uri);
        listener_.reset(make_id());
        REQUIRE(::rdma_bind_addr(listener_.get(), reinterpret_cast<sockaddr*>(&at)) == 0);
        REQUIRE(::rdma_listen(listener_.get(), 4) == 0);
        const std::uint16_t port = ntohs(::rdma_get_src_port(listener_.get()));
        return "verbs://" + na::parse_address(uri)->host + ":" + std::to_string(port);
    }
    // Requires: state `asked`.
    void accept(ByteView words) {
        bring_up();
        rdma_conn_param param = offer(words);
        REQUIRE(::rdma_accept(id_.get(), &param) == 0);
    }
    void reject(ByteView words) {
        REQUIRE(::rdma_reject(id_.get(), words.data(), static_cast<std::uint8_t>(words.size())) ==
                0);
        state_ = State::over;
    }
    void hang_up() {
        pair_.reset();
        id_.reset();
        state_ = State::over;
    }

    // Processes pending events and completions.
    void step() {
        rdma_cm_event* event = nullptr;
        while (::rdma_get_cm_event(channel_.get(), &event) == 0) {
            const rdma_cm_event_type what = event->event;
            status = event->status;
            const auto* words = static_cast<const std::byte*>(event->param.conn.private_data);
            theirs.assign(words, words + (words ? event->param.conn.private_data_len : 0));
            rdma_cm_id* const id = event->id;
            (void)::rdma_ack_cm_event(event);
            on_event(what, id);
        }
        if (queue_) read_completions();
    }
    State state() const { return state_; }

    void send(std::optional<std::uint32_t> immediate, ByteView bytes) {
        REQUIRE(bytes.size() <= buffer_bytes);
        std::copy(bytes.begin(), bytes.end(), slot(buffers));
        ibv_sge piece = piece_of(buffers, bytes.size());
        ibv_send_wr request{};
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
        request.imm_data = htonl(immediate.value_or(0));
        request.send_flags = IBV_SEND_SIGNALED;
        request.wr_id = send_id;
        ibv_send_wr* refused = nullptr;
        REQUIRE(::ibv_post_send(pair_.get(), &request, &refused) == 0);
    }
    // Sends it as an honest peer does.
    void send(na::verbs::Kind kind, ByteView bytes, std::uint32_t credits = 0) {
        send(encode(na::verbs::Immediate{kind, their_opening().index, credits}), bytes);
    }
    void send_hello(const na::Incarnation& incarnation) {
        na::Hello hello;
        hello.incarnation = incarnation;
        hello.message_bytes_max = 17 * 1024;
        hello.eager_bytes_max = 16 * 1024;
        std::byte words[na::hello_bytes_max];
        send(na::verbs::Kind::hello, {words, encode(hello, words)});
    }
    na::verbs::ConnectData their_opening() const {
        const auto connect_data = na::verbs::decode_connect_data(opening_);
        REQUIRE(connect_data);
        return *connect_data;
    }

    std::vector<std::byte> theirs;  // Private data of the last event.
    int status = 0;                 // Status of the last event.
    std::vector<Message> got;
    int failures = 0;  // Of the local work requests.

  private:
    static constexpr std::uint32_t buffers = 64;
    static constexpr std::size_t buffer_bytes = 20 * 1024;
    static constexpr std::uint64_t send_id = 1u << 20;

    static sockaddr_storage name_of(const std::string& uri) {
        const na::Address address = *na::parse_address(uri);
        const auto name = na::SocketName::from_numeric(address.host, address.port);
        sockaddr_storage storage{};
        std::memcpy(&storage, name->get(), name->size());
        return storage;
    }
    rdma_cm_id* make_id() {
        rdma_cm_id* id = nullptr;
        REQUIRE(::rdma_create_id(channel_.get(), &id, nullptr, RDMA_PS_TCP) == 0);
        return id;
    }
    rdma_conn_param offer(ByteView words) const {
        rdma_conn_param param{};
        param.private_data = words.data();
        param.private_data_len = static_cast<std::uint8_t>(words.size());
        param.retry_count = param.rnr_retry_count = 7;
        param.qp_num = pair_->qp_num;
        return param;
    }
    void on_event(rdma_cm_event_type what, rdma_cm_id* id) {
        switch (what) {
            case RDMA_CM_EVENT_ADDR_RESOLVED: REQUIRE(::rdma_resolve_route(id, 1000) == 0); return;
            case RDMA_CM_EVENT_ROUTE_RESOLVED: {
                rdma_conn_param param = offer(own_words_);
                REQUIRE(::rdma_connect(id, &param) == 0);
                return;
            }
            case RDMA_CM_EVENT_CONNECT_REQUEST:
                opening_ = theirs;
                id_.reset(id);
                state_ = State::asked;
                return;
            case RDMA_CM_EVENT_CONNECT_RESPONSE:
                opening_ = theirs;
                bring_up();
                REQUIRE(::rdma_establish(id) == 0);
                state_ = State::connected;
                return;
            case RDMA_CM_EVENT_ESTABLISHED: state_ = State::connected; return;
            case RDMA_CM_EVENT_REJECTED: state_ = State::refused; return;
            case RDMA_CM_EVENT_DISCONNECTED: state_ = State::over; return;
            default: state_ = State::unreachable; return;
        }
    }
    void bring_up() {
        for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
            ibv_qp_attr attr{};
            int mask = 0;
            attr.qp_state = state;
            REQUIRE(::rdma_init_qp_attr(id_.get(), &attr, &mask) == 0);
            REQUIRE(::ibv_modify_qp(pair_.get(), &attr, mask) == 0);
            for (std::uint32_t i = 0; state == IBV_QPS_INIT && i < buffers; ++i) post(i);
        }
    }
    std::byte* slot(std::uint32_t index) { return memory_.data() + buffer_bytes * index; }
    ibv_sge piece_of(std::uint32_t index, std::size_t bytes) {
        return {reinterpret_cast<std::uintptr_t>(slot(index)), static_cast<std::uint32_t>(bytes),
                region_->lkey};
    }
    void post(std::uint32_t index) {
        ibv_sge piece = piece_of(index, buffer_bytes);
        ibv_recv_wr request{index, nullptr, &piece, 1};
        ibv_recv_wr* refused = nullptr;
        REQUIRE(::ibv_post_recv(pair_.get(), &request, &refused) == 0);
    }
    void read_completions() {
        ibv_wc wc{};
        while (::ibv_poll_cq(queue_.get(), 1, &wc) == 1) {
            if (wc.status != IBV_WC_SUCCESS) {
                failures += wc.wr_id == send_id ? 1 : 0;
            } else if (wc.wr_id != send_id) {
                const auto index = static_cast<std::uint32_t>(wc.wr_id);
                got.push_back({ntohl(wc.imm_data), {slot(index), slot(index) + wc.byte_len}});
                post(index);
            }
        }
    }

    State state_ = State::idle;
    std::vector<std::byte> own_words_, opening_;
    std::vector<std::byte> memory_;
    na::verbs::Owned<ibv_context> context_;
    na::verbs::Owned<rdma_event_channel> channel_;
    na::verbs::Owned<ibv_pd> domain_;
    na::verbs::Owned<ibv_cq> queue_;
    na::verbs::Owned<ibv_mr> region_;
    na::verbs::Owned<ibv_qp> pair_;
    na::verbs::Owned<rdma_cm_id> listener_;
    na::verbs::Owned<rdma_cm_id> id_;
};

}  // namespace weft::test
