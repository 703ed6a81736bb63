// The words of regions and transfers of a simulation, recorded outside of it, and checked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <weft/channel.h>
#include <weft/region.h>

#include "base/trace_hash.h"
#include "simulation/ledger.h"
#include "simulation/rules.h"

namespace weft::scenarios {

inline constexpr std::size_t region_words = 8192;

// Each word identifies its writer: never 0 or `poison`. Regions and puts are numbered apart.
inline constexpr std::uint64_t untouched = 0;
inline constexpr std::uint64_t poison = 0xdddddddddddddddd;
inline constexpr std::uint64_t of_region = std::uint64_t{1} << 40;
inline std::uint64_t word_of(std::uint64_t key, std::uint64_t at) {
    return (key << 20 | at) * 2 + 1;
}
std::uint64_t load(Bytes memory, std::uint64_t word);
void store(Bytes memory, std::uint64_t word, std::uint64_t value);

// A range of words in a region, written by one put and no other.
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

struct TransferRecord {
    std::uint64_t number = 0;
    bool is_put = false;
    bool is_forged = false;  // Its reference allows less than it requests.
    std::string client;
    std::uint32_t client_life = 0;
    unsigned leg = 0;            // The client's context.
    bool was_connected = false;  // At its submission.
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

    Waiting waiting() const { return {client, leg, region->owner, submitted, was_connected}; }
};

class BulkLedger {
  public:
    explicit BulkLedger(RuleResults& results) : results_(results) {}

    Exposed& expose(Exposed exposed);
    TransferRecord& begin(TransferRecord record);
    const std::vector<std::unique_ptr<Exposed>>& regions() const { return exposed_; }
    const std::vector<std::unique_ptr<TransferRecord>>& transfers() const { return transfers_; }

    // From here on the owner uses the memory for other data. `running_since`: since when the owner
    // runs without a pause.
    void fenced(Exposed& exposed, TimePoint now, TimePoint running_since);
    // `owner_lives`: the life that exposed the region is up.
    void on_complete(TransferRecord& record, const Status& status, const Conditions& conditions,
                     bool owner_lives);
    // At the end: of a region with a live owner; then of all.
    void validate_region(const Exposed& exposed);
    void close();

    std::uint64_t hash() const { return trace_.value(); }
    static std::string describe(const TransferRecord& record);
    static std::string describe(const Exposed& exposed);

  private:
    void validate_memory(const Exposed& exposed);
    void validate_put(const Exposed& exposed, const Written& written);
    void validate_status(const TransferRecord& record, const Conditions& conditions,
                         bool owner_lives);
    void validate_arrival(const TransferRecord& record, const Conditions& conditions,
                          bool owner_lives);
    void validate_bytes(const TransferRecord& record);
    void validate_local(const TransferRecord& record);

    RuleResults& results_;
    std::vector<std::unique_ptr<Exposed>> exposed_;
    std::vector<std::unique_ptr<TransferRecord>> transfers_;
    base::TraceHash trace_;
};

}  // namespace weft::scenarios
