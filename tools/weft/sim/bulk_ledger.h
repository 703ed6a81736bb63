// What regions and transfers of a simulation hold word by word, kept outside of it, and judged.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <weft/channel.h>
#include <weft/region.h>

#include "base/trace_hash.h"
#include "sim/ledger.h"
#include "sim/rules.h"

namespace weft::tool {

inline constexpr std::size_t region_words = 8192;

// Of each word it is known who wrote it: never 0 or `poison`. Regions and puts are numbered apart.
inline constexpr std::uint64_t untouched = 0;
inline constexpr std::uint64_t poison = 0xdddddddddddddddd;
inline constexpr std::uint64_t of_region = std::uint64_t{1} << 40;
inline std::uint64_t word_of(std::uint64_t key, std::uint64_t at) {
    return (key << 20 | at) * 2 + 1;
}
std::uint64_t load(Bytes memory, std::uint64_t word);
void store(Bytes memory, std::uint64_t word, std::uint64_t value);

// A range of words in a region, written by one put; nobody else's.
struct Written {
    std::uint64_t put = 0;
    std::uint64_t first = 0;
    std::uint64_t words = 0;
};

struct Exposed {
    std::uint64_t number = 0;
    std::string owner;
    std::uint32_t owner_life = 0;
    bool is_read = false;  // Else written.
    Buffer memory;
    Region region;
    RegionRef ref;
    std::uint64_t next_free = 0;
    std::vector<Written> written;
    TimePoint closed = never;
    TimePoint fenced = never;
};

struct Moved {
    std::uint64_t number = 0;
    bool is_put = false;
    bool is_forged = false;  // Its reference allows less than it asks for.
    std::string client;
    std::uint32_t client_life = 0;
    Exposed* region = nullptr;
    std::uint64_t first = 0;  // Words.
    std::uint64_t words = 0;
    Buffer local;
    OperationId operation;
    TimePoint submitted{};
    TimePoint deadline = never;
    TimePoint cancelled = never;
    bool is_submitting = true;
    bool is_complete = false;
    bool client_died = false;
    bool has_written = false;  // Known when the region is fenced.
    Status status;
};

class BulkLedger {
  public:
    explicit BulkLedger(Verdict& verdict) : verdict_(verdict) {}

    Exposed& expose(Exposed exposed);
    Moved& begin(Moved moved);
    const std::vector<std::unique_ptr<Exposed>>& regions() const { return exposed_; }
    const std::vector<std::unique_ptr<Moved>>& transfers() const { return moved_; }

    // From here on the memory is its owner's alone, who uses it for something else.
    // `awake_since`: when the owner stood still last.
    void fenced(Exposed& exposed, TimePoint now, TimePoint awake_since);
    // `owner_lives`: in the life that exposed the region.
    void completes(Moved& moved, const Status& status, const Scene& scene, bool owner_lives);
    // At the end, of a region whose owner lives; then of all.
    void judge_region(const Exposed& exposed);
    void close();

    std::uint64_t hash() const { return trace_.value(); }
    static std::string describe(const Moved& moved);
    static std::string describe(const Exposed& exposed);

  private:
    void judge_memory(const Exposed& exposed);
    void judge_put(const Exposed& exposed, const Written& written);
    void judge_status(const Moved& moved, const Scene& scene, bool owner_lives);
    void judge_arrival(const Moved& moved, const Scene& scene, bool owner_lives);
    void judge_bytes(const Moved& moved);
    void judge_local(const Moved& moved);

    Verdict& verdict_;
    std::vector<std::unique_ptr<Exposed>> exposed_;
    std::vector<std::unique_ptr<Moved>> moved_;
    base::TraceHash trace_;
};

}  // namespace weft::tool
