// The memory that two connected endpoints share: a page of words and one ring per direction.
//
// The connector makes it and writes ring 0; the acceptor attaches it and writes ring 1.
#pragma once

#include "na/memory_file.h"
#include "na/sm/ring.h"

namespace weft::na::sm {

enum class Side : std::uint8_t { connector = 0, acceptor = 1 };

class Segment {
  public:
    // Errors: RESOURCE_EXHAUSTED. `file` is to be sent to the peer.
    static Result<Segment> make(base::UniqueFd* file);
    // Errors: DATA_LOSS (not a file of make()), RESOURCE_EXHAUSTED.
    static Result<Segment> attach(int file);

    Segment() = default;
    explicit operator bool() const { return bool(mapping_); }

    RingWriter writer(Side side) const {
        return RingWriter(&words(own_ring(side)), data(own_ring(side)));
    }
    RingReader reader(Side side) const {
        return RingReader(&words(1 - own_ring(side)), data(1 - own_ring(side)));
    }

  private:
    explicit Segment(Mapping mapping) : mapping_(std::move(mapping)) {}
    static Result<Segment> map(int file);
    static std::size_t own_ring(Side side) { return static_cast<std::size_t>(side); }
    RingWords& words(std::size_t ring) const;
    std::byte* data(std::size_t ring) const;

    Mapping mapping_;
};

}  // namespace weft::na::sm
