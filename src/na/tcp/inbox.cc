#include "na/tcp/inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"

namespace weft::na::tcp {

static bool is_possible(const StreamHead& head) {
    return head.bytes >= sizeof head && head.bytes <= message_bytes_max;
}

// One pass over the bytes, however many of the frames are control frames: a peer may send only
// these.
Scan scan_frames(Bytes bytes) noexcept {
    Scan scan;
    std::size_t at = 0;   // Of the next frame.
    std::size_t end = 0;  // Of the remaining frames, with padding.
    while (bytes.size() - at >= sizeof(StreamHead)) {
        const auto head = base::load<StreamHead>(bytes.data() + at);
        if (!is_possible(head)) {
            scan.broken = true;
            return scan;
        }
        const std::size_t step = padded(head.bytes);
        if (bytes.size() - at < step) break;
        if (head.kind < first_control) [[likely]] {
            if (end != at) std::memmove(bytes.data() + end, bytes.data() + at, step);
            scan.whole = end + head.bytes;
            end += step;
        } else {
            const bool wants_bulk = head.kind == static_cast<std::uint8_t>(ControlKind::want_bulk);
            const bool bye = head.kind == static_cast<std::uint8_t>(ControlKind::bye);
            if ((!wants_bulk && !bye) || head.bytes != sizeof head) {
                scan.broken = true;  // A handshake in mid-stream, or a later version's frame.
                return scan;
            }
            scan.wants_bulk |= wants_bulk;
            scan.bye |= bye;
        }
        at += step;
    }
    scan.start = at;
    scan.left = bytes.size() - at;
    WEFT_DCHECK(scan.whole <= scan.start);
    return scan;
}

void Slab::reset() noexcept {
    used_ = 0;
    for (MessagePool::Buffer& memory : retained_) pool_.give_back(std::move(memory));
    retained_.clear();
}

void Slab::retain(MessagePool::Buffer memory) {
    WEFT_DCHECK(memory);
    retained_.push_back(std::move(memory));
}

// Bytes that the partial frame still needs; first those of its head.
std::size_t Inbox::missing_bytes() const {
    WEFT_DCHECK(have_ > 0 && part_);
    if (have_ < sizeof(StreamHead)) return sizeof(StreamHead) - have_;
    return padded(base::load<StreamHead>(part_.get()).bytes) - have_;
}

std::size_t Inbox::room(Slab& slab, bool one, std::size_t bytes_max, iovec* pieces) noexcept {
    std::size_t count = 0;
    if (have_ > 0) {
        pieces[count++] = {part_.get() + have_, std::min(missing_bytes(), bytes_max)};
        bytes_max -= pieces[0].iov_len;
    }
    if (have_ == 0 || (!one && bytes_max > 0)) {
        const Bytes free = slab.room();
        pieces[count++] = {free.data(), std::min(free.size(), bytes_max)};
    }
    return count;
}

Inbox::Taken Inbox::on_read(std::size_t bytes, Slab& slab) noexcept {
    Taken taken;
    const std::size_t to_part = have_ > 0 ? std::min(bytes, missing_bytes()) : 0;
    Bytes fresh = slab.room().first(bytes - to_part);
    if (have_ > 0) {
        have_ += to_part;
        fresh = complete(fresh, slab, taken);
        if (taken.broken || have_ > 0) return taken;
    }
    if (fresh.empty()) return taken;
    Scan scan;
    add_messages(fresh, taken, scan);
    if (taken.broken) return taken;
    slab.use(fresh.data() + scan.whole);
    if (scan.left == 0) return taken;
    part_ = slab.pool().take();
    if (!part_) {
        taken.no_memory = true;
        return taken;
    }
    std::memcpy(part_.get(), fresh.data() + scan.start, scan.left);
    have_ = scan.left;
    return taken;
}

// Completes the partial frame from `fresh`. Returns the bytes behind it.
Bytes Inbox::complete(Bytes fresh, Slab& slab, Taken& taken) noexcept {
    for (int steps = 0; steps < 2; ++steps) {  // The head, then the rest.
        if (have_ >= sizeof(StreamHead) && !is_possible(base::load<StreamHead>(part_.get()))) {
            taken.broken = true;
            return {};
        }
        const std::size_t more = std::min(missing_bytes(), fresh.size());
        if (more > 0) std::memcpy(part_.get() + have_, fresh.data(), more);
        have_ += more;
        fresh = fresh.subspan(more);
    }
    if (have_ < sizeof(StreamHead) || missing_bytes() > 0) return fresh;
    Scan scan;
    add_messages({part_.get(), have_}, taken, scan);
    slab.retain(std::move(part_));
    have_ = 0;
    return fresh;
}

void Inbox::add_messages(Bytes bytes, Taken& taken, Scan& scan) noexcept {
    scan = scan_frames(bytes);
    taken.broken |= scan.broken;
    taken.wants_bulk |= scan.wants_bulk;
    taken.bye |= scan.bye;
    WEFT_ASSERT(taken.count < std::size(taken.messages));
    if (scan.whole > 0 && !scan.broken) taken.messages[taken.count++] = bytes.first(scan.whole);
}

void Inbox::clear(Slab& slab) noexcept {
    slab.pool().give_back(std::move(part_));
    have_ = 0;
}

}  // namespace weft::na::tcp
