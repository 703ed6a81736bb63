// Operations that are started in a scope: they get no more time than it has, are cancelled with it,
// and their completions run in it, so that what those start is a part of it, too.
//
// Costs nothing where there is no scope: each operation has a record of its own, around its
// completion.
#pragma once

#include <utility>

#include "base/slot_table.h"
#include "core/context.h"

namespace weft::core {

// `Owner` has cancel(id, why); `Done` is the completion. Lifetime: outlives the completions it
// gave.
template <class Owner, class Done>
class NestedOperations {
  public:
    NestedOperations(Context& context, Owner& owner) : context_(context), owner_(owner) {}

    // `start(done)` starts the operation and returns its id, none when `done` has run already.
    // Requires: a scope that was not cancelled, or an operation that ends at once by itself. False:
    // no record is left, `done` is untouched.
    template <class Start>
    bool start(Scope& scope, Done& done, Start&& start) {
        Entry* const entry = records_.take();
        if (!entry) return false;
        Record& record = entry->value;
        record.table = this;
        record.done = std::move(done);
        record.cancel = [](InScope& operation) {
            auto& self = static_cast<Record&>(operation);
            self.table->owner_.cancel(self.id, scope_cancelled_text);
        };
        record.id = {};
        scope.add(record);
        const base::SlotId own = entry->id();
        const base::SlotId id = start(Done(Ending(record)));
        // It may have run already.
        if (Entry* still = records_.find(own)) still->value.id = id;
        return true;
    }

  private:
    struct Record : InScope {
        NestedOperations* table = nullptr;
        base::SlotId id;  // The owner's.
        Done done;
    };
    using Entry = typename base::SlotTable<Record>::Entry;

    // Stands for the completion; destroyed uncalled when the operation was abandoned.
    class Ending {
      public:
        explicit Ending(Record& record) : record_(&record) {}
        Ending(Ending&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}
        Ending& operator=(Ending&&) = delete;
        ~Ending() {
            if (record_) record_->table->take_back(*record_);
        }
        template <class... Outcome>
        void operator()(Outcome&&... outcome) {
            if (!record_) return;  // It runs once.
            Record& record = *std::exchange(record_, nullptr);
            const Context::Within within(record.table->context_, record.scope);
            Done done = record.table->take_back(record);
            done(std::forward<Outcome>(outcome)...);
        }

      private:
        Record* record_;
    };

    Done take_back(Record& record) {
        record.leave();
        Done done = std::move(record.done);
        records_.give_back(base::SlotTable<Record>::entry_of(record));
        return done;
    }

    Context& context_;
    Owner& owner_;
    base::SlotTable<Record> records_;
};

}  // namespace weft::core
