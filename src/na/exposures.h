// The exposed regions of a runtime with several contexts, where each context finds those of the
// others. A context that a peer accesses a region of another one through adopts the region
// (exposure_row.h), and is asked for a fence before its memory is released.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/thread_annotations.h"
#include "na/exposure_row.h"
#include "na/provider.h"

namespace weft::na {

// The numbers of regions. Those for large bodies are of one context, since their bodies arrive over
// its connections; each context has some numbers for the regions of the program.
struct RegionNumbers {
    static constexpr std::uint32_t bodies = 1024;
    static constexpr std::uint32_t alone = 3072;  // Of the program, in a runtime with one context.

    explicit constexpr RegionNumbers(std::uint32_t contexts)
        : each(contexts == 1 ? alone : std::min(alone, (regions_max - bodies) / contexts)) {}
    constexpr std::uint32_t first_of(std::uint32_t context) const {
        return bodies + context * each;
    }
    // The context that exposes it. Requires: it is none of a body.
    constexpr std::uint32_t home_of(std::uint32_t region) const { return (region - bodies) / each; }

    std::uint32_t each;  // Of the program, for each context.
};

class Exposures {
  public:
    // An endpoint with a table that peers read themselves. Its own regions are there without this.
    class Reader {
      public:
        // Thread: any; not concurrently for one region. A region that is there already stays.
        virtual void publish(const Exposure& exposure) = 0;
        // Refuses every access that has not started yet; the fence follows. Also for a region of
        // its own context; no effect if that generation is not there. Thread: any.
        virtual void revoke(std::uint32_t region, std::uint32_t generation) noexcept = 0;

      protected:
        ~Reader() = default;
    };

    explicit Exposures(std::uint16_t contexts)
        : numbers_(contexts),
          count_(numbers_.each * contexts),
          rows_(std::make_unique<ExposureRow[]>(count_)) {}

    const RegionNumbers& numbers() const { return numbers_; }

    // Makes a region of this context known to the others. Thread: that of the context. Requires: it
    // is exposed at its own endpoints. `ends`: of its lease.
    void publish(const Exposure& exposure, TimePoint ends = never) WEFT_EXCLUDES(mutex_);
    // From here on no access begins in any context, though its thread is blocked. Repeated, and for
    // an earlier generation, it has no effect. Returns, to the context that has exposed the region,
    // those that may use it, which are to be asked for fences, as bits. Thread: any.
    std::uint64_t revoke(std::uint32_t region, std::uint32_t generation) WEFT_EXCLUDES(mutex_);
    // A region of another context, from now on also used by `context`. Call it again before each
    // later access. nullopt: that generation of it is not exposed (any more), or has another key;
    // then the region is not marked: a peer without the key delays no fence. The arguments may
    // come from a peer. Thread: that of `context`.
    std::optional<Exposure> adopt(std::uint32_t region, std::uint32_t generation, std::uint64_t key,
                                  std::uint16_t context, TimePoint now);
    // Why adopt() gave nothing. Thread: any.
    bool has_other_key(std::uint32_t region, std::uint32_t generation, std::uint64_t key) const;
    // Whether revoke() or the end of its lease refuses further accesses to a region of this
    // context, which it has not fenced yet. False for one of a body. Thread: that of the context.
    bool has_ended(std::uint32_t region, std::uint32_t generation, TimePoint now) const;

    // Until remove_reader(), each region of the other contexts is published to the reader, and its
    // context is asked for each fence. Thread: that of `context`.
    void add_reader(std::uint16_t context, Reader& reader) WEFT_EXCLUDES(mutex_);
    void remove_reader(const Reader& reader) WEFT_EXCLUDES(mutex_);
    // Contexts that have, or had, a reader.
    std::uint64_t reading() const { return reading_.load(std::memory_order_seq_cst); }

  private:
    struct Reading {
        Reader* reader;
        std::uint16_t context;
    };
    static std::uint64_t bit(std::uint32_t context) { return std::uint64_t{1} << context; }
    bool is_row(std::uint32_t region) const {
        return region >= RegionNumbers::bodies && region - RegionNumbers::bodies < count_;
    }
    Exposure exposure_at(std::uint32_t row, std::uint32_t generation) const;

    const RegionNumbers numbers_;
    const std::uint32_t count_;
    const std::unique_ptr<ExposureRow[]> rows_;
    alignas(128) std::atomic<std::uint64_t> reading_{0};
    base::Mutex mutex_;
    std::vector<Reading> readers_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::na
