// The scopes that stand, in one context, for calls that other contexts of the runtime serve: of
// work that their handlers have submitted here.
#pragma once

#include <memory>
#include <vector>

#include "base/intrusive_list.h"
#include "core/inherited_scope.h"

namespace weft::core {

// Their memory is used again and not freed, because a context may look at a scope that has ended.
// Thread: the context's.
class RemoteScopes {
  public:
    // Of one submission: the number of its context, and its number there.
    struct Key {
        std::uint64_t context = 0;
        std::uint64_t serial = 0;
        friend bool operator==(const Key&, const Key&) = default;
    };

    struct Remote : base::ListNode {
        std::uint32_t generation = 0;  // Odd: open.
        CallScope scope{generation};
        Key key;
    };

    RemoteScopes() = default;
    RemoteScopes(const RemoteScopes&) = delete;
    RemoteScopes& operator=(const RemoteScopes&) = delete;
    ~RemoteScopes() {
        while (open_.pop_front()) {
        }
        while (free_.pop_front()) {
        }
    }

    Remote& open(const Key& key, TimePoint deadline) {
        if (free_.empty()) {
            all_.push_back(std::make_unique<Remote>());
            free_.push_back(*all_.back());
        }
        Remote& remote = *free_.pop_front();
        ++remote.generation;
        remote.key = key;
        remote.scope.deadline = deadline;
        open_.push_back(remote);
        return remote;
    }
    // The operations that are left continue without a scope.
    void close(Remote& remote) {
        CallScope& scope = remote.scope;
        WEFT_ASSERT(scope.is_open());
        scope.release_operations();
        scope.deadline = never;
        scope.cancelled = scope.needs_cleanup = false;
        ++remote.generation;
        remote.unlink();
        free_.push_back(remote);
    }
    // No effect on one that has ended. Cost: a walk over the open ones.
    void cancel(const Key& key) {
        Remote* found = nullptr;
        open_.for_each([&](Remote& one) {
            if (one.key == key) found = &one;
        });
        if (!found) return;
        found->scope.cancelled = true;
        found->scope.cancel_operations();
    }
    std::size_t made() const { return all_.size(); }

  private:
    std::vector<std::unique_ptr<Remote>> all_;
    base::IntrusiveList<Remote> open_, free_;
};

}  // namespace weft::core
