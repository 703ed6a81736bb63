#include <weft/region.h>

#include "base/codec.h"
#include "base/duration_text.h"
#include "bulk/regions.h"

namespace weft {

static constexpr std::uint8_t ref_version = 1;

void RegionRef::encode(std::span<std::byte, wire_bytes> to) const {
    RegionRef wire = *this;
    wire.version = ref_version;
    base::store(to.data(), wire);
}

static Status forged(const char* why) {
    return fail(Code::permission_denied, std::string("the bytes are no reference of weft: ") + why);
}

Result<RegionRef> RegionRef::decode(ByteView bytes) {
    if (bytes.size() != wire_bytes) return forged("wrong length");
    auto ref = base::load<std::array<std::byte, wire_bytes>>(bytes.data());
    if (static_cast<std::uint8_t>(ref[0]) != ref_version) return forged("unknown version");
    if (static_cast<std::uint8_t>(ref[1]) > 3) return forged("impossible access");
    const auto decoded = base::load<RegionRef>(bytes.data());
    if (decoded.reserved16 != 0 || decoded.reserved32 != 0) return forged("reserved bits set");
    if (decoded.length > UINT64_MAX - decoded.offset) return forged("impossible range");
    return decoded;
}

namespace bulk {

Status validate_exposure(const Buffer& memory, const ExposeOptions& options) {
    const auto refused = [](std::string why) {
        return fail(Code::invalid_argument, std::move(why));
    };
    if (!memory || memory.size() == 0) {
        return refused("an empty buffer, of " + std::to_string(memory.size()) +
                       " bytes, can't be exposed; Runtime::allocate() gives one that can");
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    if (memory.size() > UINTPTR_MAX - begin) {
        return refused("a buffer of " + std::to_string(memory.size()) +
                       " bytes, more than there are behind its address; Buffer::adopt() was given "
                       "a wrong size");
    }
    if (options.access == Access::none || options.access > Access::read_write) {
        return refused("ExposeOptions::access is " +
                       std::to_string(static_cast<int>(options.access)) +
                       ": expected read, write or read_write");
    }
    if (options.lease < Duration::zero()) {
        return refused("ExposeOptions::lease is " + base::duration_text(options.lease) +
                       ": expected a time from 0, for none, on");
    }
    return {};
}

}  // namespace bulk

RegionRef Region::ref(std::uint64_t offset, std::uint64_t bytes) const {
    if (!detail::is_inside(offset, bytes, ref_.length))
        detail::refuse_range("Region::ref()", offset, bytes, ref_.length);
    RegionRef part = ref_;
    part.offset += offset;
    part.length = bytes;
    return part;
}

void Region::close(Function<void()> fenced) {
    if (auto owner = std::exchange(owner_, nullptr)) {
        owner->close(ref_.region, ref_.generation, std::move(fenced));
    } else if (fenced) {
        fenced();
    }
}

Region& Region::operator=(Region&& other) noexcept {
    if (this != &other) {
        close();
        owner_ = std::move(other.owner_);
        ref_ = std::exchange(other.ref_, {});
    }
    return *this;
}

}  // namespace weft
