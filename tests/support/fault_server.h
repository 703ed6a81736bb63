// A server for fault tests: it is killed, stopped and restarted, and its network fails. It holds
// calls, and exposes memory that it can revoke.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <weft/runtime.h>

namespace weft::test {

inline std::string text_of(const RegionRef& ref) {
    std::array<std::byte, RegionRef::wire_bytes> bytes;
    ref.encode(bytes);
    return std::string(as_text(bytes));
}

class FaultServer final : public Service {
  public:
    static constexpr std::size_t lent_bytes = 1 << 20;
    static constexpr MethodId echo{"test.Fault/Echo"};
    static constexpr MethodId hold{"test.Fault/Hold"};         // Holds the call until `answer`.
    static constexpr MethodId held{"test.Fault/Held"};         // Returns the number of held calls.
    static constexpr MethodId answer{"test.Fault/Answer"};     // Completes all held calls.
    static constexpr MethodId lent{"test.Fault/Lent"};         // Returns a read-write reference.
    static constexpr MethodId read_only{"test.Fault/Read"};    // Returns a read-only reference.
    static constexpr MethodId take_back{"test.Fault/Revoke"};  // Revokes the first; then replies.

    Status serve(Runtime& runtime, const std::string& uri) {
        Result<Buffer> memory = runtime.allocate(lent_bytes);
        if (!memory) return memory.status();
        Result<Region> both = runtime.expose(*memory, {.access = Access::read_write});
        if (!both) return both.status();
        Result<Region> shown = runtime.expose(*memory, {.access = Access::read});
        if (!shown) return shown.status();
        lent_ = *std::move(both);
        shown_ = *std::move(shown);
        lent_ref_ = lent_.ref();
        return runtime.serve(*this, uri);
    }

    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo, [](Call call) { call.reply(call.request()); });
        registrar.add(hold, [this](Call call) { held_.push_back(std::move(call)); });
        registrar.add(held,
                      [this](Call call) { call.reply(as_bytes(std::to_string(held_.size()))); });
        registrar.add(answer, [this](Call call) {
            for (Call& one : std::exchange(held_, {})) one.reply(as_bytes("at last"));
            call.reply({});
        });
        registrar.add(lent, [this](Call call) { call.reply(as_bytes(text_of(lent_ref_))); });
        registrar.add(read_only,
                      [this](Call call) { call.reply(as_bytes(text_of(shown_.ref()))); });
        registrar.add(take_back, [this](Call call) {
            taking_ = std::move(call);
            lent_.close([this] { taking_.reply({}); });
        });
    }

  private:
    std::vector<Call> held_;
    Region lent_, shown_;
    RegionRef lent_ref_;
    Call taking_;
};

}  // namespace weft::test
