// Outcome of an operation: gRPC's canonical code, plus what gRPC does not report: whether the
// operation may have taken effect, how far it progressed, and at which peer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

// Names and numbers are gRPC's (grpc/grpc: doc/statuscodes.md). The number is the exit status of
// the command-line tools and the byte on the wire.
enum class Code : std::uint8_t {
    ok = 0,
    cancelled = 1,
    unknown = 2,
    invalid_argument = 3,
    deadline_exceeded = 4,
    not_found = 5,
    already_exists = 6,
    permission_denied = 7,
    resource_exhausted = 8,
    failed_precondition = 9,
    aborted = 10,
    out_of_range = 11,
    unimplemented = 12,
    internal = 13,
    unavailable = 14,
    data_loss = 15,
    unauthenticated = 16,
};
inline constexpr std::uint8_t code_max = 16;

// What is certain about the operation at the peer.
enum class Effect : std::uint8_t {
    none = 0,     // Proven: nothing changed: no handler ran, or it rejected the call.
    applied = 1,  // Proven: the handler replied, or the whole transfer completed.
    unknown = 2,  // Sent, and no proof either way.
};

// How far the operation progressed.
enum class Stage : std::uint8_t {
    none = 0,       // Not a remote operation, or failed before it was accepted.
    queued = 1,     // Waiting in this process, or not received whole by the peer.
    resolving = 2,  // Waiting for the address or the connection.
    sent = 3,       // Handed to the transport.
    executing = 4,  // The peer's handler answered; of a rank in a collective: it began.
};

std::string_view name_of(Code code);      // "UNAVAILABLE"
std::string_view name_of(Effect effect);  // "unknown"
std::string_view name_of(Stage stage);    // "sent"

// A value: copyable, comparable by code. Success costs no allocation.
class [[nodiscard]] Status {
  public:
    Status() = default;
    // A number outside of Code (an errno that was cast) becomes UNKNOWN; the text contains the
    // number.
    Status(Code code, std::string text) : code_(code) {
        detail().text = std::move(text);
        if (static_cast<std::uint8_t>(code) > code_max) make_unknown();
    }

    Status(const Status& other) { *this = other; }
    Status& operator=(const Status& other);
    Status(Status&&) noexcept = default;
    Status& operator=(Status&&) noexcept = default;

    bool ok() const { return code_ == Code::ok; }
    explicit operator bool() const { return ok(); }
    Code code() const { return code_; }
    // Of a failure: what it may have done.
    Effect effect() const { return effect_; }
    Stage stage() const { return stage_; }
    std::string_view text() const { return detail_ ? std::string_view(detail_->text) : ""; }
    // The address of the peer that the operation was for, also where nothing was sent; else empty.
    std::string_view peer() const { return detail_ ? std::string_view(detail_->peer) : ""; }
    // True: rejected() made this status in this process, as a handler's statement that it did
    // nothing. A status that a call, a transfer or a collective returned never is a rejection.
    bool is_rejection() const { return is_rejection_; }

    // One line for people: "UNAVAILABLE: peer died (effect unknown, stage sent, peer sm://store)".
    // Control characters of the text, which a peer may have written, are escaped.
    std::string to_string() const;

    Status&& with_effect(Effect effect) && {
        effect_ = effect;
        is_rejection_ = false;
        return std::move(*this);
    }
    Status&& with_stage(Stage stage) && {
        stage_ = stage;
        return std::move(*this);
    }
    Status&& with_peer(std::string_view peer) && {
        detail().peer = peer;
        is_rejection_ = false;
        return std::move(*this);
    }
    // Puts "context: " in front of the text.
    Status&& in(std::string_view context) &&;

  private:
    friend Status rejected(Code code, std::string text);
    friend Status rejected(Status why);

    void make_unknown();
    struct Detail {
        std::string text;
        std::string peer;
    };
    Detail& detail() {
        if (!detail_) detail_ = std::make_unique<Detail>();
        return *detail_;
    }

    Code code_ = Code::ok;
    Effect effect_ = Effect::none;
    Stage stage_ = Stage::none;
    bool is_rejection_ = false;
    std::unique_ptr<Detail> detail_;
};

// Requires: not Code::ok. A failure with that code becomes INTERNAL; the text reports the misuse.
inline Status fail(Code code, std::string text) {
    if (code != Code::ok) return Status(code, std::move(text));
    return Status(Code::internal, "a failure without a code: " + text);
}

// A handler's statement that it did nothing: its client sees effect none and may safely call again.
// Forwarding the status of a call, transfer or collective makes no such statement. `code` as in
// fail().
inline Status rejected(Code code, std::string text) {
    Status status = fail(code, std::move(text)).with_stage(Stage::executing);
    status.is_rejection_ = true;
    return status;
}
// The same for a failure that a local function returned, such as a reference that does not parse or
// memory that is not available. A status that names a peer or has an effect is returned unchanged,
// since something was done elsewhere. So is OK, which is no failure.
inline Status rejected(Status why) {
    if (why.ok() || why.effect() != Effect::none || !why.peer().empty()) return why;
    why = std::move(why).with_stage(Stage::executing);
    why.is_rejection_ = true;
    return why;
}

}  // namespace weft
