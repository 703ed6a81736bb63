#include "chunk_buffers.h"

#include <utility>

namespace storage {

using weft::Buffer;
using weft::ClientId;
using weft::Result;
using weft::Status;

// Every buffer is leased.
static Status none_left() {
    return weft::fail(weft::Code::resource_exhausted, "all buffers are leased");
}

ChunkBuffers::ChunkBuffers(std::size_t count, Make make)
    : count_(count), missing_(count), make_(std::move(make)) {}

bool ChunkBuffers::can_acquire(const Client& client) const {
    const std::size_t left_by_others = count_ - (leased_ - client.held);
    return !client.waiting.empty() && client.held < (left_by_others + 1) / 2;
}

// The next waiting client after the last one served; end() when none waits.
ChunkBuffers::Clients::iterator ChunkBuffers::next_in_turn() {
    auto at = clients_.upper_bound(last_);
    for (std::size_t i = 0; i < clients_.size(); ++i, ++at) {
        if (at == clients_.end()) at = clients_.begin();
        if (can_acquire(at->second)) return at;
    }
    return clients_.end();
}

// OK: a buffer is free. A buffer that can't be made now is tried again at the next use.
Status ChunkBuffers::refill() {
    if (!free_.empty()) return {};
    Result<Buffer> made = missing_ == 0 ? none_left() : make_();
    if (!made) return std::move(made).status();
    --missing_;
    free_.push_back(*std::move(made));
    return {};
}

ChunkBuffers::LeaseRequest& ChunkBuffers::take_first(Client& of) {
    LeaseRequest& first = *of.waiting.front();
    of.waiting.pop_front();
    first.is_waiting_ = false;
    return first;
}

void ChunkBuffers::grant_waiting() {
    for (auto next = next_in_turn(); next != clients_.end(); next = next_in_turn()) {
        if (Status why = refill(); !why.ok()) {
            if (leased_ == 0) fail_all(why);
            return;  // The returned buffer is leased again.
        }
        auto& [client, of] = *next;
        LeaseRequest& request = take_first(of);
        request.buffer_ = std::move(free_.back());
        free_.pop_back();
        ++of.held;
        ++leased_;
        last_ = client;
        request.waiter_.resume_later();
    }
}

// No buffer is leased, so none would be returned.
void ChunkBuffers::fail_all(const Status& why) {
    for (auto& [client, of] : std::exchange(clients_, {})) {
        while (!of.waiting.empty()) {
            LeaseRequest& request = take_first(of);
            request.error_ = why;
            request.waiter_.resume_later();
        }
    }
}

void ChunkBuffers::cancel(LeaseRequest& request) {
    const auto own = clients_.find(request.client_);
    std::erase(own->second.waiting, &request);
    drop_idle(own);
}

void ChunkBuffers::drop_idle(Clients::iterator client) {
    if (client->second.held == 0 && client->second.waiting.empty()) clients_.erase(client);
}

void ChunkBuffers::release(ClientId client, Buffer buffer) {
    const auto own = clients_.find(client);
    --own->second.held;
    --leased_;
    drop_idle(own);
    if (buffer) {
        free_.push_back(std::move(buffer));
    } else {
        ++missing_;
    }
    grant_waiting();
}

}  // namespace storage
