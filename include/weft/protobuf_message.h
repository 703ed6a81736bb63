// Messages of protobuf: kept for reuse, written in place, parsed within a bound.
//
// A message takes more memory than its bytes: an empty one of two bytes becomes an object. So a
// body is measured before it is parsed, and refused when it would take more than a share of
// RuntimeOptions::parsed_bytes_max. A message that is kept for reuse keeps what it was cleared of,
// at every depth, so that each use may add to it: what uses add is summed up, compared with what
// the message holds, and a message that holds too much is freed.
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
#include <weft/thread_kept.h>

namespace google::protobuf {
class Descriptor;
class Message;
class MessageLite;
}  // namespace google::protobuf

namespace weft::detail {

// ---- how much memory a message takes ------------------------------------------------------------

// Bodies of flat types up to here are not measured: of messages that live in one callback, and of
// those that live as long as a coroutine, of which a client may have 1024. Flat is a type of single
// numbers and of a few single texts and flat messages: whatever the uses, one holds no more than a
// multiple of its largest body.
inline constexpr std::size_t unmeasured_bytes_max = 4096;
inline constexpr std::size_t unheld_bytes_max = 256;
inline constexpr std::size_t too_large = std::numeric_limits<std::size_t>::max();

// What objects of a type, and of those in it, take.
class Layout;
const Layout& layout_of(const google::protobuf::Descriptor& type);
// Hidden, as all that is static in templates: the plugins of a program, each with a copy of weft,
// would share it.
template <class Message>
[[gnu::visibility("hidden")]] const Layout& layout_of() {
    // No static of a reference: a child forked while it is found would wait for it for ever.
    static constinit std::atomic<const Layout*> found{nullptr};
    const Layout* layout = found.load(std::memory_order_acquire);
    if (!layout) [[unlikely]] {
        layout = &layout_of(*Message::descriptor());
        found.store(layout, std::memory_order_release);
    }
    return *layout;
}
// unmeasured_bytes_max where the type is flat, else none.
std::size_t unmeasured_bytes(const Layout& layout);

// An upper bound of the memory that parsing `body` takes at any time, whether or not it parses;
// too_large when that is more than `most`. Adds to `hidden` what stays of that in a cleared message
// where SpaceUsedLong() does not see it: tables of maps and lists of unknown fields. Takes no
// memory. Thread: any.
std::size_t measure(const Layout& layout, ByteView body, std::size_t most,
                    std::size_t* hidden = nullptr);
// parsed_bytes_max of the context that this thread is in. A message that no call holds may take
// half of it.
std::size_t parsed_bytes_max();
// The same for a call's request: within the share of its client, where the call then holds it until
// it is answered.
std::size_t hold_measured(const Layout& layout, const Call& call, std::size_t* hidden);

// INVALID_ARGUMENT for what does not parse, or has no value in a required field, which it names;
// RESOURCE_EXHAUSTED for what was too large; effect none. `into` is what parse() left.
Status bad_request(google::protobuf::Message& into, const Call& call, bool is_too_large);
// INTERNAL or RESOURCE_EXHAUSTED, effect applied.
Status bad_reply(google::protobuf::Message& into, ByteView body, bool is_too_large);
Status large_reply(std::string_view type, std::size_t bytes, std::size_t most);

// ---- messages -----------------------------------------------------------------------------------

// Without ParseFromArray's complaints on standard error: the bytes are the peer's.
template <class Message>
bool parse(Message& into, ByteView bytes) {
    return into.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
           into.IsInitialized();
}

// Simulations (weft/sim.h) that this process has. While there is one, the entries of a map field
// are written in the order of their keys: the order that protobuf gives differs from run to run.
extern std::atomic<unsigned> simulations;
void write_sorted(const google::protobuf::MessageLite& message, std::byte* to);

// Requires: its size is cached in the message.
template <class Message>
void write_message(const Message& message, std::byte* to) {
    if (simulations.load(std::memory_order_relaxed) != 0) [[unlikely]]
        return write_sorted(message, to);
    message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(to));
}

// `bytes` is its size, cached in the message, so that it must be written before it changes.
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
// fields from one use to the next. Thread: given back where it was taken.
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

    // Bodies up to here are not measured.
    std::size_t unmeasured() const { return kept_->unmeasured; }
    // Of those.
    bool parse(ByteView bytes) { return detail::parse(kept_->message, bytes); }

    // Of any body: measured, where it is not small. OK: it was parsed.
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

    // Of a message that the program has filled: what it holds is measured as it is written.
    BodyWriter writer() {
        const std::size_t bytes = kept_->message.ByteSizeLong();
        if (bytes > unmeasured()) [[unlikely]]
            return measured_writer(bytes);
        return writer_of(kept_->message, bytes);
    }
    // The same, where it is not written.
    [[gnu::noinline]] void not_written() {
        if (kept_->message.ByteSizeLong() > unmeasured()) used_ += not_kept;
    }
    // Either may get what the other holds.
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
        std::size_t grown = 0;   // What it held when that was asked, and what uses may have added.
        std::size_t hidden = 0;  // What they may have added that SpaceUsedLong() does not see.
        Kept* next = nullptr;
    };
    struct Pool : ThreadKept {
        Kept* first = nullptr;
        std::uint32_t size = kept_max;  // kept_max: keeps no more, or has to ask first.
    };
    static void release(ThreadKept& pool) noexcept {
        Pool& from = static_cast<Pool&>(pool);
        from.size = kept_max;
        while (from.first) delete std::exchange(from.first, from.first->next);
    }

    static constexpr std::size_t kept_bytes_max = 128 << 10;
    static constexpr std::size_t grown_max = 2 * kept_bytes_max;
    static constexpr std::size_t not_kept = too_large / 4;
    // So that one that is never measured is asked, too, once in 4096 uses.
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
        if (to.is_known || !keep_for_thread(to)) return false;
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
    // What it holds is asked only when uses have added as much as may be kept.
    [[gnu::noinline]] bool may_stay() {
        if (used_ > kept_bytes_max) return false;
        kept_->grown = kept_->message.SpaceUsedLong() + kept_->hidden;
        return kept_->grown <= kept_bytes_max;
    }

    Kept* const kept_;
    std::size_t used_ = used_min;
};

// A reply among others that live as long: it may take half of what they leave of `room`.
template <class Reply>
Status read_reply(Reply& reply, ByteView bytes, std::size_t& room) {
    const std::size_t taken = measure(layout_of<Reply>(), bytes, room / 2);
    if (taken == too_large) return large_reply(reply.GetTypeName(), bytes.size(), room / 2);
    room -= taken;
    return parse(reply, bytes) ? Status() : bad_reply(reply, bytes, false);
}

// A reply that becomes the program's.
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
