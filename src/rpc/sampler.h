// How long calls take, by method: of some calls (timed_every), from the request to the reply.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>

#include <weft/channel.h>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/slot_table.h"

namespace weft::rpc {

class Sampler {
  public:
    static constexpr std::size_t methods_max = 256;  // Of more nothing is known.

    struct Row {
        std::string method;
        base::Latencies ok;  // Nanoseconds of calls that succeeded.
        std::uint64_t failed = 0;
    };

    explicit Sampler(const base::Clock& clock) : clock_(clock) {}

    // The same completion, timed from now on; as it is when there is no room.
    Completion sample(const MethodId& method, Completion&& done) {
        Row* const row = row_of(method);
        auto* const entry = row ? records_.take() : nullptr;
        if (!entry) return std::move(done);
        entry->value = {this, row, clock_.now(), std::move(done)};
        return Ending(entry->value);
    }

    // Empty: unknown.
    std::string name_of(std::uint64_t method) const {
        const auto known = rows_.find(method);
        return known == rows_.end() ? std::string() : known->second.method;
    }
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (const auto& [hash, row] : rows_) visit(row);
    }

  private:
    struct Record {
        Sampler* sampler = nullptr;
        Row* row = nullptr;
        TimePoint start{};
        Completion done;
    };

    // Stands for the completion; destroyed uncalled when the call was abandoned.
    class Ending {
      public:
        explicit Ending(Record& record) : record_(&record) {}
        Ending(Ending&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}
        Ending& operator=(Ending&&) = delete;
        ~Ending() {
            if (record_) record_->sampler->take_back(*record_);
        }
        void operator()(const Status& status, ByteView reply) {
            if (!record_) return;  // It runs once.
            Record& record = *std::exchange(record_, nullptr);
            if (status.ok()) {
                const Duration took = record.sampler->clock_.now() - record.start;
                record.row->ok.record(static_cast<std::uint64_t>(took.count()));
            } else {
                ++record.row->failed;
            }
            Completion done = record.sampler->take_back(record);
            done(status, reply);
        }

      private:
        Record* record_;
    };

    Row* row_of(const MethodId& method) {
        const auto known = rows_.find(method.hash);
        if (known != rows_.end()) return &known->second;
        if (rows_.size() == methods_max) return nullptr;
        Row& row = rows_[method.hash];
        row.method = method.name;
        return &row;
    }
    Completion take_back(Record& record) {
        Completion done = std::move(record.done);
        records_.give_back(base::SlotTable<Record>::entry_of(record));
        return done;
    }

    const base::Clock& clock_;
    std::unordered_map<std::uint64_t, Row> rows_;  // Rows stay where they are.
    base::SlotTable<Record> records_;
};

}  // namespace weft::rpc
