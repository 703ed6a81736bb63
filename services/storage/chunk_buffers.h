// The memory through which the chunks of all clients pass.
#pragma once

#include <coroutine>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <weft/buffer.h>
#include <weft/call.h>
#include <weft/result.h>

#include "waiting.h"

namespace storage {

// A bounded set of buffers, leased to clients in turn and to the requests of each client in order.
// One client has at most half of the buffers that the others leave, so that stalled transfers of
// one client do not keep the others waiting. Single-threaded. Lifetime: outlives its leases.
class ChunkBuffers {
  public:
    using Make = std::function<weft::Result<weft::Buffer>()>;

    // `make` makes each of the `count` buffers when it is first needed.
    ChunkBuffers(std::size_t count, Make make);
    ChunkBuffers(const ChunkBuffers&) = delete;
    ChunkBuffers& operator=(const ChunkBuffers&) = delete;

    class BufferLease {
      public:
        BufferLease(ChunkBuffers& from, weft::ClientId by, weft::Buffer buffer)
            : buffers_(&from), client_(by), buffer_(std::move(buffer)) {}
        BufferLease(BufferLease&& other) noexcept
            : buffers_(std::exchange(other.buffers_, nullptr)),
              client_(other.client_),
              buffer_(std::move(other.buffer_)) {}
        BufferLease& operator=(BufferLease&&) = delete;
        ~BufferLease() {
            if (buffers_) buffers_->release(client_, std::move(buffer_));
        }
        const weft::Buffer& operator*() const { return buffer_; }
        const weft::Buffer* operator->() const { return &buffer_; }
        // A transfer that failed may still touch the memory: another buffer replaces it.
        void discard() { buffer_ = weft::Buffer(); }

      private:
        ChunkBuffers* buffers_;
        weft::ClientId client_;
        weft::Buffer buffer_;
    };

    // `co_await buffers.acquire(client)`: a weft::Result<BufferLease>; a failure when no buffer can
    // be made and none is leased that would be returned.
    class LeaseRequest {
      public:
        LeaseRequest(ChunkBuffers& from, weft::ClientId by) : buffers_(from), client_(by) {}
        LeaseRequest(const LeaseRequest&) = delete;
        LeaseRequest& operator=(const LeaseRequest&) = delete;
        ~LeaseRequest() {
            if (is_waiting_) buffers_.cancel(*this);
            if (buffer_) buffers_.release(client_, std::move(buffer_));  // Never resumed.
        }
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> handle) {
            waiter_ = Waiter::current(handle);
            is_waiting_ = true;
            buffers_.clients_[client_].waiting.push_back(this);
            buffers_.grant_waiting();
        }
        weft::Result<BufferLease> await_resume() {
            if (!error_.ok()) return std::move(error_);
            return BufferLease(buffers_, client_, std::move(buffer_));
        }

      private:
        friend class ChunkBuffers;
        ChunkBuffers& buffers_;
        const weft::ClientId client_;
        weft::Buffer buffer_;
        weft::Status error_;
        Waiter waiter_;
        bool is_waiting_ = false;
    };
    LeaseRequest acquire(weft::ClientId client) { return LeaseRequest(*this, client); }

  private:
    struct Client {
        std::size_t held = 0;
        std::deque<LeaseRequest*> waiting;
    };
    using Clients = std::map<weft::ClientId, Client>;

    bool can_acquire(const Client& client) const;
    Clients::iterator next_in_turn();
    weft::Status refill();
    static LeaseRequest& take_first(Client& of);
    void grant_waiting();
    void fail_all(const weft::Status& why);
    void cancel(LeaseRequest& request);
    void drop_idle(Clients::iterator client);
    void release(weft::ClientId client, weft::Buffer buffer);

    const std::size_t count_;
    std::size_t missing_;  // Buffers still to be made.
    const Make make_;
    std::vector<weft::Buffer> free_;
    std::size_t leased_ = 0;
    Clients clients_;                             // Clients that hold a buffer or wait.
    weft::ClientId last_ = weft::ClientId::none;  // The client that had the last turn.
};

}  // namespace storage
