// The context in a child made by fork().
#include <new>

#include "base/fork.h"
#include "core/context.h"

namespace weft::core {
namespace {

// Replaces the parent's endpoints: their sockets and shared memory belong to the parent. Sends and
// receives nothing.
class ForkedEndpoint final : public na::Endpoint {
  public:
    std::string_view scheme() const override { return "forked"; }
    std::string address() const override { return ""; }
    na::Caps caps() const override { return {}; }
    const na::Limits& limits() const override { return limits_; }
    Result<na::PeerId> connect(const na::Address&, TimePoint) override { return why(); }
    const na::PeerInfo* info(na::PeerId) const override { return nullptr; }
    void close(na::PeerId) override {}
    std::string error() const override { return base::forked_text; }
    std::byte* reserve(na::PeerId, std::size_t) noexcept override { return nullptr; }
    bool commit(std::size_t) noexcept override { return false; }
    void flush() noexcept override {}
    std::size_t unsent(na::PeerId) const override { return 0; }
    std::size_t poll(std::span<na::Event>, TimePoint) noexcept override { return 0; }
    Result<na::FabricKey> expose(const na::Exposure&) override { return why(); }
    void fence(std::uint32_t, na::Holders) override {}
    std::size_t post(std::span<const na::RmaItem>) noexcept override { return 0; }

  private:
    static Status why() { return fail(Code::failed_precondition, base::forked_text); }
    const na::Limits limits_{};
};

}  // namespace

void Context::on_forked() noexcept {
    if (is_forked()) return;  // A child of a child.
    alignas(ForkedEndpoint) static std::byte memory[sizeof(ForkedEndpoint)];
    loop_.on_forked(new (memory) ForkedEndpoint);  // Never destroyed.
    submissions_.close_forked();
    waker_.on_forked();
    unbind_thread();
    if (current_ != this) return;
    // Forked inside a turn, which ends where user code returns.
    current_ = nullptr;
    router_.fail_always();
}

Status Context::why_forked() const {
    if (!is_forked()) return {};
    return fail(Code::failed_precondition, base::forked_text);
}

}  // namespace weft::core
