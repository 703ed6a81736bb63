#include "chunk_buffers.h"

#include <utility>

namespace storage {

using weft::Buffer;
using weft::ClientId;
using weft::Result;

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

// True: there is one to lend. What can't be made now is tried again with the next use.
bool ChunkBuffers::refill() {
    if (!free_.empty()) return true;
    if (missing_ == 0) return false;
    Result<Buffer> made = make_();
    if (!made) return false;
    --missing_;
    free_.push_back(*std::move(made));
    return true;
}

void ChunkBuffers::lend() {
    for (auto next = next_in_turn(); next != clients_.end() && refill(); next = next_in_turn()) {
        auto& [client, of] = *next;
        Borrowing& borrowing = *of.waiting.front();
        of.waiting.pop_front();
        borrowing.buffer_ = std::move(free_.back());
        free_.pop_back();
        borrowing.waits_ = false;
        ++of.held;
        ++lent_;
        last_ = client;
        borrowing.sleeper_.wake();
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
