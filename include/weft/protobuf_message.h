// Messages of protobuf: kept for reuse, written in place, parsed within a bound.
//
// A message takes more memory than its bytes: an empty one of two bytes becomes an object. So a
// body is measured before it is parsed, and refused when it would take more than a share of
// RuntimeOptions::parsed_bytes_max.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <weft/bytes.h>
#include <weft/call.h>
#include <weft/channel.h>
#include <weft/status.h>

namespace google::protobuf {
class Descriptor;
}  // namespace google::protobuf

namespace weft::detail {

// ---- how much memory a message takes ------------------------------------------------------------

// Bodies up to here are not measured: of messages that live in one callback, and of those that live
// as long as a coroutine, of which a client may have 1024.
inline constexpr std::size_t unmeasured_bytes_max = 4096;
inline constexpr std::size_t unheld_bytes_max = 256;
inline constexpr std::size_t too_large = std::numeric_limits<std::size_t>::max();

// What objects of a type, and of those in it, take.
class Layout;
const Layout& layout_of(const google::protobuf::Descriptor& type);
template <class Message>
const Layout& layout_of() {
    // No static of a reference: a child forked while it is found would wait for it for ever.
    static constinit std::atomic<const Layout*> found{nullptr};
    const Layout* layout = found.load(std::memory_order_acquire);
    if (!layout) [[unlikely]] {
        layout = &layout_of(*Message::descriptor());
        found.store(layout, std::memory_order_release);
    }
    return *layout;
}

// An upper bound of the memory that parsing `body` takes at any time, whether or not it parses;
// too_large when that is more than `most`. Takes no memory. Thread: any.
std::size_t measure(const Layout& layout, ByteView body, std::size_t most);
// parsed_bytes_max of the context that this thread is in. A message that no call holds may take
// half of it.
std::size_t parsed_bytes_max();
// The same for a call's request: within the share of its client, where the call then holds it until
// it is answered.
std::size_t hold_measured(const Layout& layout, const Call& call);

// INVALID_ARGUMENT for what does not parse, RESOURCE_EXHAUSTED for what was too large; effect none.
Status bad_request(std::string_view type, const Call& call, bool is_too_large);
// INTERNAL or RESOURCE_EXHAUSTED, effect applied.
Status bad_reply(std::string_view type, std::size_t bytes, bool is_too_large);
Status large_reply(std::string_view type, std::size_t bytes, std::size_t most);

// ---- messages -----------------------------------------------------------------------------------

// Without ParseFromArray's complaints on standard error: the bytes are the peer's.
template <class Message>
bool parse(Message& into, ByteView bytes) {
    return into.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
           into.IsInitialized();
}

// A cleared message from this thread's pool of its type. It keeps the memory of its strings and
// fields from one use to the next. Thread: given back where it was taken.
template <class Message>
class Pooled {
  public:
    Pooled() {
        if (auto& kept = pool(); !kept.empty()) [[likely]] {
            message_ = std::move(kept.back());
            kept.pop_back();
        } else {
            message_ = std::make_unique<Message>();
        }
    }
    Pooled(Pooled&&) noexcept = default;
    Pooled& operator=(Pooled&&) = delete;
    ~Pooled() {
        // A large one would keep its memory. What was sent knows its size.
        if (!message_ || measured_ > kept_measured_max ||
            message_->GetCachedSize() > kept_bytes_max) {
            return;
        }
        message_->Clear();
        if (auto& kept = pool(); kept.size() < kept_max) kept.push_back(std::move(message_));
    }

    Message& operator*() const { return *message_; }

    // Of bodies that are not measured.
    bool parse(ByteView bytes) { return detail::parse(*message_, bytes); }

    // Of any body: measured, where it is not small. OK: it was parsed.
    Status read_request(const Call& call) {
        const ByteView bytes = call.request();
        if (bytes.size() > unheld_bytes_max) measured_ = hold_measured(layout(), call);
        if (measured_ != too_large && parse(bytes)) return {};
        return bad_request(message_->GetTypeName(), call, measured_ == too_large);
    }
    Status read_reply(ByteView bytes) {
        if (bytes.size() > unmeasured_bytes_max) {
            measured_ = measure(layout(), bytes, parsed_bytes_max() / 2);
        }
        if (measured_ != too_large && parse(bytes)) return {};
        return bad_reply(message_->GetTypeName(), bytes.size(), measured_ == too_large);
    }

  private:
    static constexpr std::size_t kept_max = 64;  // As many as coroutine frames (rpc/frame_pool.cc).
    static constexpr int kept_bytes_max = 64 << 10;
    static constexpr std::size_t kept_measured_max = 2 * kept_bytes_max;
    static const Layout& layout() { return layout_of<Message>(); }
    static std::vector<std::unique_ptr<Message>>& pool() {
        thread_local std::vector<std::unique_ptr<Message>> kept;
        return kept;
    }

    std::unique_ptr<Message> message_;
    std::size_t measured_ = 0;
};

// Its size is computed here and cached in the message, so it must be written before it changes.
template <class Message>
BodyWriter writer_of(const Message& message) {
    return {message.ByteSizeLong(), const_cast<Message*>(&message),
            [](void* object, std::byte* to) {
                static_cast<const Message*>(object)->SerializeWithCachedSizesToArray(
                    reinterpret_cast<std::uint8_t*>(to));
            }};
}

// A reply among others that live as long: it may take half of what they leave of `room`.
template <class Reply>
Status read_reply(Reply& reply, ByteView bytes, std::size_t& room) {
    const std::size_t taken = measure(layout_of<Reply>(), bytes, room / 2);
    if (taken == too_large) return large_reply(reply.GetTypeName(), bytes.size(), room / 2);
    room -= taken;
    return parse(reply, bytes) ? Status() : bad_reply(reply.GetTypeName(), bytes.size(), false);
}

// A reply that becomes the program's.
template <class Reply>
Status read_reply(void* object, ByteView bytes) {
    auto& reply = *static_cast<Reply*>(object);
    if (bytes.size() > unmeasured_bytes_max) [[unlikely]] {
        std::size_t room = parsed_bytes_max();
        return read_reply(reply, bytes, room);
    }
    return parse(reply, bytes) ? Status() : bad_reply(reply.GetTypeName(), bytes.size(), false);
}

}  // namespace weft::detail
