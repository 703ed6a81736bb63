// A stand-in for weft::Group with scripted results. Like weft::Group it is a handle.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <weft/protobuf_group.h>

#include "support/catch.h"

namespace weft::test {

class FakeGroup {
  public:
    static constexpr CollectiveId id = 7;

    // The last call, and how the next call completes.
    struct LastCall {
        std::string method;  // Of a member collective: its name.
        std::vector<std::vector<std::byte>> bodies;
        std::vector<std::uint32_t> ranks;  // The ranks of the bodies, for a scatter.
        GroupCallOptions options;
        std::optional<RankSet> include;
        GroupCompletion done;
        int cancelled = 0;
        bool here = true;
        bool gives_id = true;
        std::function<void()> during_start = [] {};  // Runs before the start returns.
        Executor* executor = nullptr;
    };

    LastCall* operator->() const { return last_call_.get(); }

    CollectiveId collective(const MethodId& method, const BodyWriter& body,
                            const GroupCallOptions& options, GroupCompletion done) const {
        std::vector<std::byte> bytes(body.bytes);
        body(bytes.data());
        return take(method.name, {std::move(bytes)}, options, std::move(done));
    }
    CollectiveId scatter(const MethodId& method, std::span<const RankBody> bodies,
                         const GroupCallOptions& options, GroupCompletion done) const {
        std::vector<std::vector<std::byte>> all;
        last_call_->ranks.clear();
        for (const RankBody& one : bodies) {
            last_call_->ranks.push_back(one.rank);
            all.emplace_back(one.body.begin(), one.body.end());
        }
        return take(method.name, std::move(all), options, std::move(done));
    }
    CollectiveId all_gather(std::string_view name, ByteView value, const GroupCallOptions& options,
                            GroupCompletion done) const {
        return take(name, {{value.begin(), value.end()}}, options, std::move(done));
    }
    void cancel(CollectiveId of) const {
        CHECK(of == id);
        ++last_call_->cancelled;
    }
    explicit operator bool() const { return true; }
    bool on_thread() const { return last_call_->here; }
    weft::TimePoint deadline(const weft::GroupCallOptions&) const { return weft::never; }
    Executor& executor() const { return *last_call_->executor; }

    // Completes the last call.
    void complete(GroupOutcome outcome) const { std::move(last_call_->done)(std::move(outcome)); }

    template <class Message>
    Message sent_message(std::size_t at = 0) const {
        const std::vector<std::byte>& bytes = last_call_->bodies.at(at);
        Message message;
        CHECK(message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
        return message;
    }

  private:
    CollectiveId take(std::string_view name, std::vector<std::vector<std::byte>> bodies,
                      const GroupCallOptions& options, GroupCompletion done) const {
        last_call_->method = name;
        last_call_->bodies = std::move(bodies);
        last_call_->options = options;
        if (options.include) last_call_->include = *options.include;
        last_call_->done = std::move(done);
        last_call_->during_start();
        return last_call_->gives_id ? id : 0;
    }

    std::shared_ptr<LastCall> last_call_ = std::make_shared<LastCall>();
};

}  // namespace weft::test
