// The memory that chunks of all clients pass through.
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

// A bounded set of buffers, lent to clients in turn and to each in order of its asking. One client
// has at most half of what the others leave, so that a client whose transfers stand still does not
// keep the others waiting. Not for other threads. Lifetime: outlives its loans.
class ChunkBuffers {
  public:
    using Make = std::function<weft::Result<weft::Buffer>()>;

    // Makes each of `count` buffers when it is first needed.
    ChunkBuffers(std::size_t count, Make make);
    ChunkBuffers(const ChunkBuffers&) = delete;
    ChunkBuffers& operator=(const ChunkBuffers&) = delete;

    class Loan {
      public:
        Loan(ChunkBuffers& from, weft::ClientId by, weft::Buffer buffer)
            : buffers_(&from), client_(by), buffer_(std::move(buffer)) {}
        Loan(Loan&& other) noexcept
            : buffers_(std::exchange(other.buffers_, nullptr)),
              client_(other.client_),
              buffer_(std::move(other.buffer_)) {}
        Loan& operator=(Loan&&) = delete;
        ~Loan() {
            if (buffers_) buffers_->take_back(client_, std::move(buffer_));
        }
        const weft::Buffer& operator*() const { return buffer_; }
        const weft::Buffer* operator->() const { return &buffer_; }
        // A transfer that failed may still touch the memory: another buffer takes its place.
        void spoil() { buffer_ = weft::Buffer(); }

      private:
        ChunkBuffers* buffers_;
        weft::ClientId client_;
        weft::Buffer buffer_;
    };

    // `co_await buffers.borrow(client)`: a weft::Result<Loan>, a failure where none can be made and
    // none is lent that would come back.
    class Borrowing {
      public:
        Borrowing(ChunkBuffers& from, weft::ClientId by) : buffers_(from), client_(by) {}
        Borrowing(const Borrowing&) = delete;
        Borrowing& operator=(const Borrowing&) = delete;
        ~Borrowing() {
            if (waits_) buffers_.give_up(*this);
            if (buffer_) buffers_.take_back(client_, std::move(buffer_));  // Never resumed.
        }
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> handle) {
            sleeper_ = Sleeper::here(handle);
            waits_ = true;
            buffers_.clients_[client_].waiting.push_back(this);
            buffers_.lend();
        }
        weft::Result<Loan> await_resume() {
            if (!why_not_.ok()) return std::move(why_not_);
            return Loan(buffers_, client_, std::move(buffer_));
        }

      private:
        friend class ChunkBuffers;
        ChunkBuffers& buffers_;
        const weft::ClientId client_;
        weft::Buffer buffer_;
        weft::Status why_not_;
        Sleeper sleeper_;
        bool waits_ = false;
    };
    Borrowing borrow(weft::ClientId client) { return Borrowing(*this, client); }

  private:
    struct Client {
        std::size_t held = 0;
        std::deque<Borrowing*> waiting;
    };
    using Clients = std::map<weft::ClientId, Client>;

    bool can_borrow(const Client& client) const;
    Clients::iterator next_in_turn();
    weft::Status refill();
    static Borrowing& take_first(Client& of);
    void lend();
    void refuse_all(const weft::Status& why);
    void give_up(Borrowing& borrowing);
    void drop_idle(Clients::iterator client);
    void take_back(weft::ClientId client, weft::Buffer buffer);

    const std::size_t count_;
    std::size_t missing_;  // To be made.
    const Make make_;
    std::vector<weft::Buffer> free_;
    std::size_t lent_ = 0;
    Clients clients_;                             // Those that hold one or wait.
    weft::ClientId last_ = weft::ClientId::none;  // That had its turn.
};

}  // namespace storage
