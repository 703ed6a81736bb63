// The load of the leak tests: every kind of operation that holds resources, cut off at any point.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <weft/runtime.h>

#include "base/random.h"
#include "support/catch.h"
#include "support/test_timeout.h"

namespace weft::test {

// More than any transport moves in one turn.
inline constexpr std::size_t vault_bytes = 768 << 10;
inline constexpr std::size_t large_bytes = 200 << 10;  // Sent by rendezvous.

// The service of the server. Thread: any; one serves all contexts.
class Desk final : public Service {
  public:
    static constexpr MethodId echo{"leaks.Desk/Echo"};
    static constexpr MethodId hold{"leaks.Desk/Hold"};  // Held until the client gives up.
    static constexpr MethodId pull{"leaks.Desk/Pull"};  // Reads the memory of the reference.

    // Call before it is served.
    void open(Runtime& runtime) {
        runtime_ = &runtime;
        memory_ = runtime.allocate(vault_bytes).value();
        region_ = runtime.expose(memory_, {.access = Access::read_write}).value();
    }
    RegionRef ref() const { return region_.ref(); }

    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo, [this](Call call) {
            ++served_;
            call.reply(call.request());
        });
        registrar.add(hold, [this](Call call) {
            const std::size_t number = ++served_;
            ++under_way_;
            hold_call(number, std::move(call)).on_cancel([this, number] {
                ended(!take_held(number).empty());
            });
        });
        registrar.add(pull, [this](Call call) { read(std::move(call)); });
    }

    std::size_t served() const { return served_; }        // Calls received;
    std::size_t under_way() const { return under_way_; }  // of those, calls in flight.
    std::size_t ended_again() const { return ended_again_; }

  private:
    Call& hold_call(std::size_t number, Call call) {
        const std::lock_guard lock(mutex_);
        return held_.emplace(number, std::move(call)).first->second;
    }
    std::map<std::size_t, Call>::node_type take_held(std::size_t number) {
        const std::lock_guard lock(mutex_);
        return held_.extract(number);
    }
    struct Read {
        Call call;
        bool ended = false;
    };
    void read(Call call) {
        ++served_;
        const Result<RegionRef> from = RegionRef::decode(call.request());
        if (!from || from->length > vault_bytes) return call.fail(fail(Code::out_of_range, ""));
        const Buffer into = runtime_->allocate(from->length).value();
        ++under_way_;
        auto reading = std::make_shared<Read>(Read{std::move(call)});
        reading->call.get(*from, 0, into, [this, reading](const Status& status) {
            ended(!std::exchange(reading->ended, true));
            if (status.ok()) return reading->call.reply({});
            reading->call.fail(status);
        });
    }
    void ended(bool for_the_first_time) { for_the_first_time ? --under_way_ : ++ended_again_; }

    Runtime* runtime_ = nullptr;
    Buffer memory_;
    Region region_;
    std::mutex mutex_;
    std::map<std::size_t, Call> held_;  // Guarded by it; each is used on its context.
    std::atomic<std::size_t> served_{0}, under_way_{0}, ended_again_{0};
};

// The operations of one visit, each of which must end exactly once, on any thread.
class Ops {
  public:
    Completion call() {
        return [this, id = start()](const Status& status, ByteView) { end(id, status); };
    }
    TransferCompletion transfer() {
        return [this, id = start()](const Status& status) { end(id, status); };
    }
    // Begins the next visit; an operation of an earlier visit that ends from here on counts as
    // ended again.
    void next() {
        const std::lock_guard lock(mutex_);
        ++visit_;
        started_ = ended_ = ok_ = 0;
        failed_.clear();
        seen_.fill(false);
    }

    std::size_t started() const { return locked(started_); }
    std::size_t ended() const { return locked(ended_); }
    std::size_t ok() const { return locked(ok_); }
    std::string failed() const { return locked(failed_); }
    bool all_ended() const {
        const std::lock_guard lock(mutex_);
        return ended_ == started_;
    }
    // Of all visits: operations that ended more than once, and the first end that no cut explains.
    std::size_t ended_again() const { return locked(ended_again_); }
    std::string strange() const {
        const std::lock_guard lock(mutex_);
        return strange_;
    }

    // Turns `runtime`, or waits for its thread, until `ended` operations have ended.
    bool wait(Runtime& runtime, bool manual, std::size_t ended) {
        const auto done = [this, ended] { return ended_ >= ended; };
        if (manual)
            return runtime.turn_until([this, ended] { return this->ended() >= ended; },
                                      2 * test_timeout);
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, 2 * test_timeout, done);
    }

  private:
    static constexpr std::size_t ops_max = 64;
    struct Id {
        std::uint32_t visit = 0, index = 0;
    };

    Id start() {
        const std::lock_guard lock(mutex_);
        REQUIRE(started_ < ops_max);
        return {visit_, static_cast<std::uint32_t>(started_++)};
    }
    void end(Id id, const Status& status) {
        const std::lock_guard lock(mutex_);
        if (id.visit != visit_ || std::exchange(seen_[id.index], true)) {
            ++ended_again_;
            return;
        }
        ++ended_;
        ok_ += status.ok();
        if (!status.ok()) failed_ += status.to_string() + "; ";
        // permission_denied: from a server that revokes its memory as it closes.
        const bool cut = status.code() == Code::cancelled || status.code() == Code::unavailable ||
                         status.code() == Code::permission_denied;
        if (!status.ok() && !cut && strange_.empty()) strange_ = status.to_string();
        changed_.notify_all();
    }
    template <class T>
    T locked(const T& value) const {
        const std::lock_guard lock(mutex_);
        return value;
    }

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::uint32_t visit_ = 0;
    std::array<bool, ops_max> seen_{};
    std::size_t started_ = 0, ended_ = 0, ok_ = 0, ended_again_ = 0;
    std::string failed_;  // Failures of this visit.
    std::string strange_;
};

// One client's visit to a server: the operations that it starts, and their resources.
class Visit {
  public:
    Visit(Runtime& runtime, Channel channel, const RegionRef& vault, Ops& ops)
        : runtime_(runtime), channel_(std::move(channel)), vault_(vault), ops_(ops) {}

    void call() { channel_.call(Desk::echo, as_bytes("hello"), options, ops_.call()); }
    void call_large() {
        static const std::vector<std::byte> body(large_bytes);
        channel_.call(Desk::echo, body, options, ops_.call());
    }
    void call_held() { channel_.call(Desk::hold, {}, options, ops_.call()); }
    void get() { channel_.get(vault_, 0, memory(), options, ops_.transfer()); }
    void put() { channel_.put(vault_, 0, memory(), options, ops_.transfer()); }
    // The server reads this side's memory.
    void be_read() {
        lent_.push_back(runtime_.expose(memory(), {.access = Access::read}).value());
        std::array<std::byte, RegionRef::wire_bytes> bytes;
        lent_.back().ref().encode(bytes);
        channel_.call(Desk::pull, bytes, options, ops_.call());
    }
    void any(base::Random& random) {
        switch (random.next() % 6) {
            case 0: return call();
            case 1: return call_large();
            case 2: return call_held();
            case 3: return get();
            case 4: return put();
            default: return be_read();
        }
    }

  private:
    static constexpr CallOptions options{.timeout = 4 * test_timeout};
    Buffer memory() { return runtime_.allocate(vault_bytes).value(); }

    Runtime& runtime_;
    Channel channel_;
    const RegionRef vault_;
    Ops& ops_;
    std::vector<Region> lent_;
};

// Usually small, sometimes much larger: a number of turns, for example.
inline std::size_t moment(base::Random& random, std::size_t octaves) {
    return random.next() % (std::size_t{1} << random.next() % octaves);
}

}  // namespace weft::test
