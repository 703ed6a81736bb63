// Protobuf messages: kept for reuse, written in place, parsed within a bound.
//
// A message takes more memory than its bytes: an empty one of two bytes becomes an object. So a
// body is measured before it is parsed, and refused when it would take more than a share of
// RuntimeOptions::parsed_bytes_max. A message that is kept for reuse keeps the memory of cleared
// parts, at every depth, so that each use may add to it. The additions are summed up and compared
// with the memory that the message holds; a message that holds too much is freed.
#pragma once

#include <algorithm>
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
#include <weft/thread_cache.h>

namespace google::protobuf {
class Descriptor;
class Message;
class MessageLite;
}  // namespace google::protobuf

namespace weft::detail {

// ---- how much memory a message takes ------------------------------------------------------------

// Bodies of flat types up to these sizes are not measured: the first is for messages that live in
// one callback, the second for messages that live as long as a coroutine, of which a client may
// have 1024. A flat type has single numbers, and a few single texts and flat messages: over all
// uses a message of it holds no more than a multiple of its largest body.
inline constexpr std::size_t unmeasured_bytes_max = 4096;
inline constexpr std::size_t unheld_bytes_max = 256;
inline constexpr std::size_t too_large = std::numeric_limits<std::size_t>::max();

// The memory that objects of a type, and of the types in it, take.
class Layout;
const Layout& layout_of(const google::protobuf::Descriptor& type);
// Hidden, as all statics in templates: otherwise the plugins of a program, each with a copy of
// weft, would share it.
template <class Message>
[[gnu::visibility("hidden")]] const Layout& layout_of() {
    // Not a static reference: a child forked during its initialisation would wait for it for ever.
    static constinit std::atomic<const Layout*> found{nullptr};
    const Layout* layout = found.load(std::memory_order_acquire);
    if (!layout) [[unlikely]] {
        layout = &layout_of(*Message::descriptor());
        found.store(layout, std::memory_order_release);
    }
    return *layout;
}
// unmeasured_bytes_max for a flat type, else 0.
std::size_t unmeasured_bytes(const Layout& layout);

// An upper bound of the memory that parsing `body` takes at any time, whether or not it parses;
// too_large when that is more than `most`. Adds to `hidden` the part that stays in a cleared
// message and that SpaceUsedLong() does not count: tables of maps and lists of unknown fields.
// Allocates nothing. Thread: any.
std::size_t measure(const Layout& layout, ByteView body, std::size_t most,
                    std::size_t* hidden = nullptr);
// parsed_bytes_max of this thread's context. A message that no call holds may take half of it.
std::size_t parsed_bytes_max();
// As measure(), for a call's request: within the share of its client. The call then holds that
// memory until it is answered.
std::size_t hold_measured(const Layout& layout, const Call& call, std::size_t* hidden);

// INVALID_ARGUMENT for a body that does not parse, or lacks a required field, which the text names;
// RESOURCE_EXHAUSTED for a body that was too large; effect none. `into` is as parse() left it.
Status bad_request(google::protobuf::Message& into, const Call& call, bool is_too_large);
// INTERNAL or RESOURCE_EXHAUSTED, effect applied.
Status bad_reply(google::protobuf::Message& into, ByteView body, bool is_too_large);
Status large_reply(std::string_view type, std::size_t bytes, std::size_t most);

// ---- messages -----------------------------------------------------------------------------------

// Without the messages of ParseFromArray() on standard error: the bytes are the peer's.
template <class Message>
bool parse(Message& into, ByteView bytes) {
    return into.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
           into.IsInitialized();
}

// The number of simulations (weft/sim.h) in this process. While there is one, the entries of a map
// field are written in the order of their keys: protobuf's own order differs from run to run.
extern std::atomic<unsigned> simulations;
void write_sorted(const google::protobuf::MessageLite& message, std::byte* to);

// Requires: the message has its size cached.
template <class Message>
void write_message(const Message& message, std::byte* to) {
    if (simulations.load(std::memory_order_relaxed) != 0) [[unlikely]]
        return write_sorted(message, to);
    message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(to));
}

// `bytes` is the size that is cached in the message, so the message must be written before it
// changes.
template <class Message>
BodyWriter writer_of(const Message& message, std::size_t bytes) {
    return {bytes, const_cast<Message*>(&message), [](void* object, std::byte* to) {
                write_message(*static_cast<const Message*>(object), to);
            }};
}
template <class Message>
BodyWriter writer_of(const Message& message) {
    return writer_of(message, message.ByteSizeLong());
}

// A cleared message from this thread's pool of its type. It keeps the memory of its strings and
// fields from one use to the next. Thread: the one that made this also destroys it.
template <class Message>
class Pooled {
  public:
    Pooled() : kept_(take()) {}
    Pooled(const Pooled&) = delete;
    Pooled& operator=(const Pooled&) = delete;
    ~Pooled() {
        kept_->grown += used_;
        if (kept_->grown > grown_max && !may_stay()) [[unlikely]] {
            delete kept_;
            return;
        }
        kept_->message.Clear();
        give_back(kept_);
    }

    Message& operator*() const { return kept_->message; }

    // Bodies up to this size are not measured.
    std::size_t unmeasured() const { return kept_->unmeasured; }
    // For an unmeasured body.
    bool parse(ByteView bytes) { return detail::parse(kept_->message, bytes); }

    // For any body, which is measured unless it is small. OK: it was parsed.
    Status read_request(const Call& call) {
        const ByteView bytes = call.request();
        std::size_t measured = 0;
        if (bytes.size() > std::min(unmeasured(), unheld_bytes_max)) {
            measured = hold_measured(layout(), call, &kept_->hidden);
        }
        if (parse_measured(bytes, measured)) return {};
        return bad_request(kept_->message, call, measured == too_large);
    }
    Status read_reply(ByteView bytes) {
        std::size_t measured = 0;
        if (bytes.size() > unmeasured()) {
            measured = measure(layout(), bytes, parsed_bytes_max() / 2, &kept_->hidden);
        }
        if (parse_measured(bytes, measured)) return {};
        return bad_reply(kept_->message, bytes, measured == too_large);
    }

    // For a message that the program has filled: its memory is measured as it is written.
    BodyWriter writer() {
        const std::size_t bytes = kept_->message.ByteSizeLong();
        if (bytes > unmeasured()) [[unlikely]]
            return measured_writer(bytes);
        return writer_of(kept_->message, bytes);
    }
    // Instead of writer(), when the message is not written.
    [[gnu::noinline]] void not_written() {
        if (kept_->message.ByteSizeLong() > unmeasured()) used_ += not_kept;
    }
    // Before either message may take over memory of the other.
    void mix(Pooled& other) {
        used_ = other.used_ = used_ + other.used_;
        if (kept_->hidden + other.kept_->hidden > 0) used_ = other.used_ = not_kept;
    }

  private:
    // As many as coroutine frames (rpc/frame_pool.cc).
    static constexpr std::uint32_t kept_max = 64;

    struct Kept {
        Message message;
        const std::size_t unmeasured = unmeasured_bytes(layout());
        std::size_t grown = 0;   // Memory when last computed, and possible additions since.
        std::size_t hidden = 0;  // Possible additions that SpaceUsedLong() omits.
        Kept* next = nullptr;
    };
    struct Pool : ThreadCache {
        Kept* first = nullptr;
        std::uint32_t size = kept_max;  // kept_max: full, or not registered yet.
    };
    static void release(ThreadCache& pool) noexcept {
        Pool& from = static_cast<Pool&>(pool);
        from.size = kept_max;
        while (from.first) delete std::exchange(from.first, from.first->next);
    }

    static constexpr std::size_t kept_bytes_max = 128 << 10;
    static constexpr std::size_t grown_max = 2 * kept_bytes_max;
    static constexpr std::size_t not_kept = too_large / 4;
    // So that a message that is never measured is checked, too, once in 4096 uses.
    static constexpr std::size_t used_min = 64;

    static const Layout& layout() { return layout_of<Message>(); }
    [[gnu::visibility("hidden")]] static Pool& pool() {
        static constinit thread_local Pool of_this_thread{{&release}};
        return of_this_thread;
    }
    static Kept* take() {
        Pool& from = pool();
        if (!from.first) [[unlikely]]
            return make();
        --from.size;
        return std::exchange(from.first, from.first->next);
    }
    [[gnu::noinline]] static Kept* make() { return new Kept; }
    [[gnu::noinline]] static bool begins_to_keep(Pool& to) noexcept {
        if (to.is_registered || !register_thread_cache(to)) return false;
        to.size = 0;
        return true;
    }
    static void give_back(Kept* kept) {
        Pool& to = pool();
        if (to.size == kept_max && !begins_to_keep(to)) [[unlikely]] {
            delete kept;
            return;
        }
        ++to.size;
        kept->next = std::exchange(to.first, kept);
    }

    bool parse_measured(ByteView bytes, std::size_t measured) {
        if (measured == too_large) return false;
        used_ += measured;
        return parse(bytes);
    }
    [[gnu::noinline]] BodyWriter measured_writer(std::size_t bytes) {
        used_ += not_kept;  // Until it is written.
        return {bytes, this, [](void* object, std::byte* to) {
                    static_cast<Pooled*>(object)->write_measured(to);
                }};
    }
    void write_measured(std::byte* to) {
        const auto bytes = static_cast<std::size_t>(kept_->message.GetCachedSize());
        write_message(kept_->message, to);
        const std::size_t measured = measure(layout(), {to, bytes}, kept_bytes_max, &kept_->hidden);
        if (measured != too_large) used_ += measured - not_kept;
    }
    // The memory is computed only when uses have added as much as may be kept.
    [[gnu::noinline]] bool may_stay() {
        if (used_ > kept_bytes_max) return false;
        kept_->grown = kept_->message.SpaceUsedLong() + kept_->hidden;
        return kept_->grown <= kept_bytes_max;
    }

    Kept* const kept_;
    std::size_t used_ = used_min;
};

// Parses one of several replies that live equally long: it may take half of what the others leave
// of `room`.
template <class Reply>
Status read_reply(Reply& reply, ByteView bytes, std::size_t& room) {
    const std::size_t taken = measure(layout_of<Reply>(), bytes, room / 2);
    if (taken == too_large) return large_reply(reply.GetTypeName(), bytes.size(), room / 2);
    room -= taken;
    return parse(reply, bytes) ? Status() : bad_reply(reply, bytes, false);
}

// Parses a reply that the program keeps.
template <class Reply>
Status read_reply(void* object, ByteView bytes) {
    auto& reply = *static_cast<Reply*>(object);
    if (bytes.size() > unmeasured_bytes(layout_of<Reply>())) [[unlikely]] {
        std::size_t room = parsed_bytes_max();
        return read_reply(reply, bytes, room);
    }
    return parse(reply, bytes) ? Status() : bad_reply(reply, bytes, false);
}

}  // namespace weft::detail
