// Puts and gets among hosts under every fault, with regions that are closed while they are read and
// written: every byte is judged.
#include <cstring>
#include <map>

#include "base/assert.h"
#include "base/trace_hash.h"
#include "sim/stage.h"
#include "sim/times.h"

namespace weft::tool {

namespace {

constexpr Duration calm = 20s;
constexpr Duration linger = 12s;  // No new faults, but those that are there last.
constexpr Duration fence_max = 14s;
constexpr std::uint32_t transfers_per_client = 25;
constexpr std::size_t region_words = 8192;
constexpr std::size_t transfer_words_max = 4096;
constexpr std::uint64_t untouched = 0;
constexpr std::uint64_t poison = 0xdddddddddddddddd;

// Never `untouched` or `poison`. Regions and puts are numbered apart.
constexpr std::uint64_t of_region = std::uint64_t{1} << 40;
std::uint64_t word_of(std::uint64_t key, std::uint64_t at) { return (key << 20 | at) * 2 + 1; }

std::uint64_t load(Bytes memory, std::uint64_t word) {
    std::uint64_t value;
    std::memcpy(&value, memory.data() + word * sizeof value, sizeof value);
    return value;
}

void store(Bytes memory, std::uint64_t word, std::uint64_t value) {
    std::memcpy(memory.data() + word * sizeof value, &value, sizeof value);
}

// A range of words in a region, written by one put; nobody else's.
struct Written {
    std::uint64_t key = 0;
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
};

class BulkScenario : private Stage {
  public:
    BulkScenario(std::uint64_t seed, const SimOptions& options);
    ~BulkScenario() { stop_all(); }
    SimRun run();

  private:
    std::shared_ptr<void> start_owner(const std::string& name, Runtime& runtime);
    std::shared_ptr<void> start_client(const std::string& name, Runtime& runtime);
    Exposed& expose(const std::string& owner, Runtime& runtime, bool is_read);
    void close(Exposed& exposed);
    void on_fenced(Exposed& exposed);
    void judge_memory(const Exposed& exposed);
    void plan();
    void move_something(const std::string& client);
    void put_or_get(const std::string& client, Exposed& exposed, std::uint64_t words);
    void cancel_later(Moved& moved);
    void complete(Moved& moved, const Status& status);
    void judge_bytes(const Moved& moved);
    void judge_end();
    std::uint64_t open() const;
    std::string describe(const Moved& moved) const;
    static std::string describe(const Exposed& exposed);
    void trace(std::uint64_t value);

    base::TraceHash trace_;
    std::vector<std::string> owners_;
    std::vector<std::string> clients_;
    std::map<std::string, std::map<std::string, Channel>> channels_;
    std::vector<std::unique_ptr<Exposed>> exposed_;
    std::vector<std::unique_ptr<Moved>> moved_;
    bool is_over_ = false;
};

// ---- hosts and regions -------------------------------------------------------------------------

BulkScenario::BulkScenario(std::uint64_t seed, const SimOptions& options) : Stage(seed, options) {
    const std::uint32_t owners = std::max(1u, options.nodes / 4);
    owners_ = add_hosts("owner", owners, [this](const std::string& name, Runtime& runtime) {
        return start_owner(name, runtime);
    });
    clients_ = add_hosts(
        "client", std::max(options.nodes, owners + 1) - owners,
        [this](const std::string& name, Runtime& runtime) { return start_client(name, runtime); });
}

std::shared_ptr<void> BulkScenario::start_owner(const std::string& name, Runtime& runtime) {
    const Status listening = runtime.listen("sim://" + name);
    WEFT_ASSERT(listening.ok());
    for (const bool is_read : {true, false}) expose(name, runtime, is_read);
    return nullptr;
}

std::shared_ptr<void> BulkScenario::start_client(const std::string& name, Runtime& runtime) {
    auto& channels = channels_[name];
    channels.clear();
    for (const std::string& owner : owners_) {
        channels[owner] = runtime.connect("sim://" + owner).value();
    }
    return nullptr;
}

Exposed& BulkScenario::expose(const std::string& owner, Runtime& runtime, bool is_read) {
    auto exposed = std::make_unique<Exposed>();
    exposed->number = exposed_.size();
    exposed->owner = owner;
    exposed->owner_life = simulation().lives(owner);
    exposed->is_read = is_read;
    exposed->memory = runtime.allocate(region_words * sizeof(std::uint64_t)).value();
    for (std::uint64_t i = 0; i < region_words; ++i) {
        store(exposed->memory.bytes(), i,
              is_read ? word_of(of_region | exposed->number, i) : untouched);
    }
    exposed->region =
        runtime.expose(exposed->memory, {.access = is_read ? Access::read : Access::write}).value();
    exposed->ref = exposed->region.ref();
    exposed_.push_back(std::move(exposed));
    return *exposed_.back();
}

void BulkScenario::close(Exposed& exposed) {
    if (exposed.closed != never || !acts(exposed.owner)) return;
    if (!is_alive(exposed.owner, exposed.owner_life)) return;
    exposed.closed = now();
    note(describe(exposed) + " is closed");
    exposed.region.close([this, &exposed] {
        if (is_alive(exposed.owner, exposed.owner_life)) on_fenced(exposed);
    });
}

// From here on the memory is the owner's alone, who uses it for something else.
void BulkScenario::on_fenced(Exposed& exposed) {
    exposed.fenced = now();
    trace(exposed.number);
    judge_memory(exposed);
    const TimePoint since = std::max(exposed.closed, chaos_->awake_since(exposed.owner));
    verdict_.hold(exposed.fenced - since <= fence_max, Rule::fence_comes,
                  [&] { return describe(exposed); });
    for (std::uint64_t i = 0; i < region_words; ++i) store(exposed.memory.bytes(), i, poison);
    if (!is_over_) expose(exposed.owner, *simulation().runtime(exposed.owner), exposed.is_read);
}

// Nothing but what puts were asked to write there.
void BulkScenario::judge_memory(const Exposed& exposed) {
    std::vector<std::uint64_t> key_of(region_words, ~std::uint64_t{0});
    std::vector<std::uint64_t> first_of(region_words);
    for (const Written& one : exposed.written) {
        for (std::uint64_t i = 0; i < one.words; ++i) {
            key_of[one.first + i] = one.key;
            first_of[one.first + i] = one.first;
        }
    }
    for (std::uint64_t i = 0; i < region_words; ++i) {
        const std::uint64_t value = load(exposed.memory.bytes(), i);
        const std::uint64_t before =
            exposed.is_read ? word_of(of_region | exposed.number, i) : untouched;
        const bool is_put =
            key_of[i] != ~std::uint64_t{0} && value == word_of(key_of[i], i - first_of[i]);
        if (value == before || is_put) continue;
        verdict_.hold(false, Rule::moves_nothing_else, [&] {
            return describe(exposed) + ": word " + std::to_string(i) + " is " +
                   std::to_string(value);
        });
        return;
    }
}

// ---- transfers ---------------------------------------------------------------------------------

void BulkScenario::plan() {
    for (const std::string& client : clients_) {
        for (std::uint32_t i = 0; i < transfers_per_client; ++i) {
            simulation().in(any_moment(), [this, client] { move_something(client); });
        }
    }
    for (std::uint32_t i = 0; i < 4 * owners_.size(); ++i) {
        simulation().in(any_moment(), [this] { close(*exposed_[below(exposed_.size())]); });
    }
}

// Mostly of a region that is there, sometimes of one that was.
void BulkScenario::move_something(const std::string& client) {
    if (!acts(client)) return;
    Exposed* exposed = exposed_[below(exposed_.size())].get();
    const int tries_max = below(8) == 0 ? 0 : 8;
    for (int tries = 0; tries < tries_max; ++tries) {
        if (exposed->closed == never && is_alive(exposed->owner, exposed->owner_life)) break;
        exposed = exposed_[below(exposed_.size())].get();
    }
    const std::uint64_t words = 1 + below(std::uint64_t{1} << below(13));
    put_or_get(client, *exposed, std::min<std::uint64_t>(words, transfer_words_max));
}

void BulkScenario::put_or_get(const std::string& client, Exposed& exposed, std::uint64_t words) {
    auto added = std::make_unique<Moved>();
    Moved& moved = *added;
    moved.number = moved_.size();
    moved.is_put = !exposed.is_read;
    moved.client = client;
    moved.client_life = simulation().lives(client);
    moved.region = &exposed;
    moved.words = words;
    moved.first = moved.is_put ? exposed.next_free : below(region_words - words + 1);
    if (moved.first + words > region_words) return close(exposed);  // Full.
    moved.local = simulation().runtime(client)->allocate(words * sizeof(std::uint64_t)).value();
    for (std::uint64_t i = 0; i < words; ++i) {
        store(moved.local.bytes(), i, moved.is_put ? word_of(moved.number, i) : untouched);
    }
    if (moved.is_put) {
        exposed.next_free += words;
        exposed.written.push_back({moved.number, moved.first, words});
    }
    const Duration timeout = below(4) == 0 ? random_time(3s) : below(4) == 0 ? 10s : 3s;
    moved.submitted = now();
    moved.deadline = moved.submitted + timeout;
    moved_.push_back(std::move(added));
    const auto done = [this, &moved](const Status& status) { complete(moved, status); };
    const Channel& channel = channels_[client][exposed.owner];
    const std::uint64_t offset = moved.first * sizeof(std::uint64_t);
    const CallOptions with{.timeout = timeout};
    moved.operation = moved.is_put ? channel.put(exposed.ref, offset, moved.local, with, done)
                                   : channel.get(exposed.ref, offset, moved.local, with, done);
    moved.is_submitting = false;
    if (below(8) == 0) cancel_later(moved);
}

void BulkScenario::cancel_later(Moved& moved) {
    simulation().in(random_time(50ms), [this, &moved] {
        if (moved.is_complete || !acts(moved.client)) return;
        if (!is_alive(moved.client, moved.client_life)) return;
        moved.cancelled = now();
        channels_[moved.client][moved.region->owner].cancel_transfer(moved.operation);
    });
}

void BulkScenario::complete(Moved& moved, const Status& status) {
    if (!is_alive(moved.client, moved.client_life)) {
        moved.client_died = true;
        return;
    }
    const auto seen = [&] { return describe(moved) + ": " + status.to_string(); };
    verdict_.hold(!moved.is_complete, Rule::completes_once, seen);
    verdict_.hold(!moved.is_submitting, Rule::completes_later, seen);
    moved.is_complete = true;
    trace(moved.number << 8 | static_cast<std::uint64_t>(status.code()));
    judge_times(
        verdict_,
        {moved.submitted, moved.deadline, moved.cancelled, now(), chaos_->awake_since(moved.client),
         chaos_->apart_since(moved.client, moved.region->owner)},
        seen);
    if (status.ok()) {
        judge_bytes(moved);
    } else if (is_verbose()) {
        note(seen());
    }
    moved.local = Buffer();
}

void BulkScenario::judge_bytes(const Moved& moved) {
    const Exposed& region = *moved.region;
    verdict_.hold(region.fenced > moved.submitted, Rule::nothing_after_fence,
                  [&] { return describe(moved) + " began after the fence and was OK"; });
    // What was put may be overwritten by its owner already, or its host may be gone.
    if (moved.is_put && region.fenced != never) return;
    const Bytes memory = moved.is_put ? region.memory.bytes() : moved.local.bytes();
    for (std::uint64_t i = 0; i < moved.words; ++i) {
        const std::uint64_t value = load(memory, moved.is_put ? moved.first + i : i);
        const std::uint64_t wanted = moved.is_put
                                         ? word_of(moved.number, i)
                                         : word_of(of_region | region.number, moved.first + i);
        if (value == wanted) continue;
        verdict_.hold(false, Rule::moves_all_or_fails,
                      [&] { return describe(moved) + ": word " + std::to_string(i) + " differs"; });
        return;
    }
}

std::string BulkScenario::describe(const Exposed& exposed) {
    return "region " + std::to_string(exposed.number) + " of " + exposed.owner;
}

std::string BulkScenario::describe(const Moved& moved) const {
    const auto ms = [](TimePoint at) { return std::to_string(at.time_since_epoch() / 1ms); };
    return (moved.is_put ? "put " : "get ") + std::to_string(moved.number) + " by " + moved.client +
           ", words " + std::to_string(moved.first) + " to " +
           std::to_string(moved.first + moved.words) + " of " + describe(*moved.region) +
           ", submitted at " + ms(moved.submitted) + " ms, deadline " + ms(moved.deadline) + " ms";
}

void BulkScenario::trace(std::uint64_t value) {
    trace_.mix(value);
    trace_.mix(static_cast<std::uint64_t>(now().time_since_epoch().count()));
}

// ---- a run -------------------------------------------------------------------------------------

std::uint64_t BulkScenario::open() const {
    std::uint64_t all = 0;
    for (const auto& moved : moved_) all += !moved->is_complete && !moved->client_died;
    for (const auto& exposed : exposed_) {
        all += exposed->closed != never && exposed->fenced == never &&
               is_alive(exposed->owner, exposed->owner_life);
    }
    return all;
}

void BulkScenario::judge_end() {
    for (const auto& moved : moved_) {
        verdict_.hold(moved->is_complete || moved->client_died, Rule::all_complete,
                      [&] { return describe(*moved); });
    }
    for (const auto& exposed : exposed_) {
        if (!is_alive(exposed->owner, exposed->owner_life)) continue;
        verdict_.hold(exposed->fenced != never, Rule::fence_comes,
                      [&] { return describe(*exposed); });
        for (std::uint64_t i = 0; i < region_words && exposed->fenced != never; ++i) {
            if (load(exposed->memory.bytes(), i) == poison) continue;
            verdict_.hold(false, Rule::nothing_after_fence, [&] {
                return describe(*exposed) + ": word " + std::to_string(i) + " was written later";
            });
            break;
        }
    }
    judge_rest();
}

SimRun BulkScenario::run() {
    begin_trouble();
    plan();
    simulation().run_for(trouble);
    if (seed_ % 4 < 2) simulation().run_for(linger);
    chaos_->heal();
    is_over_ = true;
    // By index: what starts again exposes more.
    for (std::size_t i = 0; i < exposed_.size(); ++i) close(*exposed_[i]);
    simulation().run_until([this] { return open() == 0; }, calm);
    simulation().run_for(settle);
    judge_end();
    return report(moved_.size(), trace_.value());
}

}  // namespace

SimRun run_bulk_scenario(std::uint64_t seed, const SimOptions& options) {
    return BulkScenario(seed, options).run();
}

}  // namespace weft::tool
