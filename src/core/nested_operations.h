// Operations that are started in a scope: its deadline bounds them, they are cancelled with it, and
// their completions run in it. So operations that a completion starts belong to the scope, too.
//
// Without a scope there is no cost; in a scope each operation has a record around its completion.
#pragma once

#include <utility>

#include "base/assert.h"
#include "base/slot_table.h"
#include "core/context.h"

namespace weft::core {

// `Owner` has cancel(id, why); `Done` is the completion. Lifetime: outlives the completions that it
// made.
template <class Owner, class Done>
class NestedOperations {
  public:
    NestedOperations(Context& context, Owner& owner) : context_(context), owner_(owner) {}
    ~NestedOperations() { WEFT_DCHECK(records_.taken() == 0); }

    // `start(done)` starts the operation and returns its id, none when `done` has run already.
    // Requires: a scope that was not cancelled, or an operation that ends at once by itself. False:
    // no record is left, `done` is untouched.
    template <class Start>
    bool start(CallScope& scope, Done& done, Start&& start) {
        Entry* const entry = records_.take();
        if (!entry) return false;
        Record& record = entry->value;
        WEFT_DCHECK(done && !record.done);
        record.table = this;
        record.done = std::move(done);
        record.cancel = [](ScopedOperation& operation) {
            auto& self = static_cast<Record&>(operation);
            self.table->owner_.cancel(self.id, scope_cancelled_text);
        };
        record.id = {};
        scope.add(record);
        const base::SlotId own = entry->id();
        const base::SlotId id = start(Done(CompletionWrapper(record)));
        // The completion may have run already.
        if (Entry* still = records_.find(own)) still->value.id = id;
        return true;
    }

  private:
    struct Record : ScopedOperation {
        NestedOperations* table = nullptr;
        base::SlotId id;  // The owner's.
        Done done;
    };
    using Entry = typename base::SlotTable<Record>::Entry;

    // Wraps the completion; destroyed uncalled when the operation was abandoned.
    class CompletionWrapper {
      public:
        explicit CompletionWrapper(Record& record) : record_(&record) {}
        CompletionWrapper(CompletionWrapper&& other) noexcept
            : record_(std::exchange(other.record_, nullptr)) {}
        CompletionWrapper& operator=(CompletionWrapper&&) = delete;
        ~CompletionWrapper() {
            if (record_) record_->table->finish(*record_);
        }
        template <class... Outcome>
        void operator()(Outcome&&... outcome) {
            if (!record_) return;  // It runs once.
            Record& record = *std::exchange(record_, nullptr);
            const Context::ScopeGuard scope_guard(record.table->context_, record.scope);
            Done done = record.table->finish(record);
            done(std::forward<Outcome>(outcome)...);
        }

      private:
        Record* record_;
    };

    Done finish(Record& record) {
        WEFT_DCHECK(record.table == this);
        record.detach();
        Done done = std::move(record.done);
        records_.release(base::SlotTable<Record>::entry_of(record));
        return done;
    }

    Context& context_;
    Owner& owner_;
    base::SlotTable<Record> records_;
};

}  // namespace weft::core
