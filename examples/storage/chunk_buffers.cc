#include "chunk_buffers.h"

#include <utility>

namespace storage {

using weft::Buffer;
using weft::ClientId;
using weft::Result;
using weft::Status;

// Each is lent.
static Status none_left() { return weft::fail(weft::Code::resource_exhausted, "all are lent"); }

ChunkBuffers::ChunkBuffers(std::size_t count, Make make)
    : count_(count), missing_(count), make_(std::move(make)) {}

bool ChunkBuffers::can_borrow(const Client& client) const {
    const std::size_t left_by_others = count_ - (lent_ - client.held);
    return !client.waiting.empty() && client.held < (left_by_others + 1) / 2;
}

// The first behind the last one; end(): there is none.
ChunkBuffers::Clients::iterator ChunkBuffers::next_in_turn() {
    auto at = clients_.upper_bound(last_);
    for (std::size_t i = 0; i < clients_.size(); ++i, ++at) {
        if (at == clients_.end()) at = clients_.begin();
        if (can_borrow(at->second)) return at;
    }
    return clients_.end();
}

// OK: there is one to lend. What can't be made now is tried again with the next use.
Status ChunkBuffers::refill() {
    if (!free_.empty()) return {};
    Result<Buffer> made = missing_ == 0 ? none_left() : make_();
    if (!made) return std::move(made).status();
    --missing_;
    free_.push_back(*std::move(made));
    return {};
}

ChunkBuffers::Borrowing& ChunkBuffers::take_first(Client& of) {
    Borrowing& first = *of.waiting.front();
    of.waiting.pop_front();
    first.waits_ = false;
    return first;
}

void ChunkBuffers::lend() {
    for (auto next = next_in_turn(); next != clients_.end(); next = next_in_turn()) {
        if (Status why = refill(); !why.ok()) {
            if (lent_ == 0) refuse_all(why);
            return;  // One that comes back is lent again.
        }
        auto& [client, of] = *next;
        Borrowing& borrowing = take_first(of);
        borrowing.buffer_ = std::move(free_.back());
        free_.pop_back();
        ++of.held;
        ++lent_;
        last_ = client;
        borrowing.sleeper_.wake();
    }
}

// None is lent, so none would come back.
void ChunkBuffers::refuse_all(const Status& why) {
    for (auto& [client, of] : std::exchange(clients_, {})) {
        while (!of.waiting.empty()) {
            Borrowing& borrowing = take_first(of);
            borrowing.why_not_ = why;
            borrowing.sleeper_.wake();
        }
    }
}

void ChunkBuffers::give_up(Borrowing& borrowing) {
    const auto own = clients_.find(borrowing.client_);
    std::erase(own->second.waiting, &borrowing);
    drop_idle(own);
}

void ChunkBuffers::drop_idle(Clients::iterator client) {
    if (client->second.held == 0 && client->second.waiting.empty()) clients_.erase(client);
}

void ChunkBuffers::take_back(ClientId client, Buffer buffer) {
    const auto own = clients_.find(client);
    --own->second.held;
    --lent_;
    drop_idle(own);
    if (buffer) {
        free_.push_back(std::move(buffer));
    } else {
        ++missing_;
    }
    lend();
}

}  // namespace storage
