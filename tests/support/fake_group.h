// A stand-in of weft::Group that says what we like: a handle, as that is one.
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

    // What has been asked of it last, and how it goes on.
    struct Asked {
        std::string method;  // Of a meeting: its name.
        std::vector<std::vector<std::byte>> bodies;
        std::vector<std::uint32_t> ranks;  // Whose they are, of a scatter.
        GroupCallOptions options;
        std::optional<RankSet> include;
        GroupCompletion done;
        int cancelled = 0;
        bool here = true;
        bool gives_id = true;
        std::function<void()> while_begun = [] {};  // What happens until its start returns.
        Executor* executor = nullptr;
    };

    Asked* operator->() const { return asked_.get(); }

    CollectiveId collective(const MethodId& method, const BodyWriter& body,
                            const GroupCallOptions& options, GroupCompletion done) const {
        std::vector<std::byte> bytes(body.bytes);
        body(bytes.data());
        return take(method.name, {std::move(bytes)}, options, std::move(done));
    }
    CollectiveId scatter(const MethodId& method, std::span<const RankBody> bodies,
                         const GroupCallOptions& options, GroupCompletion done) const {
        std::vector<std::vector<std::byte>> all;
        asked_->ranks.clear();
        for (const RankBody& one : bodies) {
            asked_->ranks.push_back(one.rank);
            all.emplace_back(one.body.begin(), one.body.end());
        }
        return take(method.name, std::move(all), options, std::move(done));
    }
    CollectiveId meet(std::string_view name, ByteView value, const GroupCallOptions& options,
                      GroupCompletion done) const {
        return take(name, {{value.begin(), value.end()}}, options, std::move(done));
    }
    void cancel(CollectiveId of) const {
        CHECK(of == id);
        ++asked_->cancelled;
    }
    explicit operator bool() const { return true; }
    bool on_thread() const { return asked_->here; }
    weft::TimePoint deadline(const weft::GroupCallOptions&) const { return weft::never; }
    Executor& executor() const { return *asked_->executor; }

    // Ends it.
    void say(GroupOutcome outcome) const { std::move(asked_->done)(std::move(outcome)); }

    template <class Message>
    Message asked(std::size_t at = 0) const {
        const std::vector<std::byte>& bytes = asked_->bodies.at(at);
        Message message;
        CHECK(message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
        return message;
    }

  private:
    CollectiveId take(std::string_view name, std::vector<std::vector<std::byte>> bodies,
                      const GroupCallOptions& options, GroupCompletion done) const {
        asked_->method = name;
        asked_->bodies = std::move(bodies);
        asked_->options = options;
        if (options.include) asked_->include = *options.include;
        asked_->done = std::move(done);
        asked_->while_begun();
        return asked_->gives_id ? id : 0;
    }

    std::shared_ptr<Asked> asked_ = std::make_shared<Asked>();
};

}  // namespace weft::test
