// Latencies by method: of every calls_per_sample-th call, from the request to the reply.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>

#include <weft/channel.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "base/slot_table.h"

namespace weft::rpc {

class Sampler {
  public:
    static constexpr std::size_t methods_max = 256;  // Further methods are not sampled.

    // Alone in its lines: another context may have the memory beside it.
    struct alignas(64) MethodStats {
        std::string method;
        base::Latencies ok;  // Nanoseconds of calls that succeeded.
        std::uint64_t failed = 0;
    };

    explicit Sampler(const base::Clock& clock) : clock_(clock) {}
    ~Sampler() { WEFT_DCHECK(records_.taken() == 0); }
    Sampler(const Sampler&) = delete;
    Sampler& operator=(const Sampler&) = delete;

    // The same completion, timed from now on; unchanged when there is no room.
    Completion sample(const MethodId& method, Completion&& done) {
        WEFT_DCHECK(done);
        MethodStats* const stats = stats_of(method);
        auto* const entry = stats ? records_.take() : nullptr;
        if (!entry) return std::move(done);
        entry->value = {this, stats, clock_.now(), std::move(done)};
        return SampledCompletion(entry->value);
    }

    // Empty: unknown.
    std::string name_of(std::uint64_t method) const {
        const auto known = stats_.find(method);
        return known == stats_.end() ? std::string() : known->second.method;
    }
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (const auto& [hash, stats] : stats_) visit(stats);
    }

  private:
    struct Record {
        Sampler* sampler = nullptr;
        MethodStats* stats = nullptr;
        TimePoint start{};
        Completion done;
    };

    // Wraps the completion; destroyed uncalled when the call is abandoned.
    class SampledCompletion {
      public:
        explicit SampledCompletion(Record& record) : record_(&record) {}
        SampledCompletion(SampledCompletion&& other) noexcept
            : record_(std::exchange(other.record_, nullptr)) {}
        SampledCompletion& operator=(SampledCompletion&&) = delete;
        ~SampledCompletion() {
            if (record_) record_->sampler->release(*record_);
        }
        void operator()(const Status& status, ByteView reply) {
            if (!record_) return;  // It runs once.
            Record& record = *std::exchange(record_, nullptr);
            if (status.ok()) {
                const Duration took = record.sampler->clock_.now() - record.start;
                record.stats->ok.record(static_cast<std::uint64_t>(took.count()));
            } else {
                ++record.stats->failed;
            }
            Completion done = record.sampler->release(record);
            done(status, reply);
        }

      private:
        Record* record_;
    };

    MethodStats* stats_of(const MethodId& method) {
        const auto known = stats_.find(method.hash);
        if (known != stats_.end()) return &known->second;
        if (stats_.size() == methods_max) return nullptr;
        MethodStats& stats = stats_[method.hash];
        stats.method = method.name;
        return &stats;
    }
    Completion release(Record& record) {
        WEFT_DCHECK(record.sampler == this);
        Completion done = std::move(record.done);
        records_.release(base::SlotTable<Record>::entry_of(record));
        return done;
    }

    const base::Clock& clock_;
    std::unordered_map<std::uint64_t, MethodStats> stats_;  // Entries keep their addresses.
    base::SlotTable<Record> records_;
};

}  // namespace weft::rpc
