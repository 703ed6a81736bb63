// Puts and gets among hosts under every fault, with regions that are closed while they are read and
// written: every byte is checked.
#include <map>

#include "base/assert.h"
#include "simulation/bulk_ledger.h"
#include "simulation/stage.h"

namespace weft::scenarios {

namespace {

constexpr Duration bulk_calm = 20s;
constexpr Duration bulk_linger = 12s;  // No new faults; existing ones last.
constexpr std::uint32_t transfers_per_client = 25;
constexpr std::size_t transfer_words_max = 4096;
// From that size on, half of the transfers race with a close of the region.
constexpr std::size_t raced_words = 2048;
constexpr Duration raced_time = 12us;

class BulkScenario : private ScenarioBase {
  public:
    BulkScenario(std::uint64_t seed, const SimOptions& options);
    ~BulkScenario() { stop_all(); }
    SimRun run();

  private:
    std::shared_ptr<void> start_owner(const std::string& name, Runtime& runtime);
    std::shared_ptr<void> start_client(const std::string& name, Runtime& runtime);
    void expose(const std::string& owner, Runtime& runtime, bool is_read);
    void close(Exposed& exposed);
    void on_fenced(Exposed& exposed);
    bool is_there(const Exposed& exposed) const {
        return is_alive(exposed.owner, exposed.owner_life);
    }
    Exposed& any_region() { return *ledger_.regions()[below(ledger_.regions().size())]; }

    void plan();
    void watch();
    void start_random_transfer(const std::string& client);
    void put_or_get(const std::string& client, Exposed& exposed, std::uint64_t words);
    RegionRef forge(const RegionRef& ref, TransferRecord& record);
    void start(TransferRecord& record, const RegionRef& ref);
    void cancel_later(TransferRecord& record);
    void complete(TransferRecord& record, const Status& status);
    void validate_end();
    std::uint64_t open() const;

    BulkLedger ledger_{results_};
    std::vector<std::string> owners_;
    std::vector<std::string> clients_;
    std::map<std::string, std::map<std::string, Channel>> channels_;
    bool is_over_ = false;
};

// ---- hosts and regions -------------------------------------------------------------------------

BulkScenario::BulkScenario(std::uint64_t seed, const SimOptions& options)
    : ScenarioBase(seed, options) {
    const std::uint32_t owners = std::max(1u, options.nodes / 4);
    owners_ = add_hosts(
        "owner", owners,
        [this](const std::string& name, Runtime& runtime) { return start_owner(name, runtime); },
        Contexts::some);
    clients_ = add_hosts(
        "client", std::max(options.nodes, owners + 1) - owners,
        [this](const std::string& name, Runtime& runtime) { return start_client(name, runtime); },
        Contexts::some);
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

// Retried while there is no memory for it.
void BulkScenario::expose(const std::string& owner, Runtime& runtime, bool is_read) {
    Exposed exposed;
    exposed.owner = owner;
    exposed.owner_life = simulation().starts(owner);
    exposed.is_read = is_read;
    exposed.memory = runtime.allocate(region_words * sizeof(std::uint64_t)).value();
    Result<Region> region = fail(Code::internal, "");
    const ExposeOptions with{.access = is_read ? Access::read : Access::write};
    // Where a fence has ended, or on any context.
    api::RuntimeImpl& impl = impl_of(runtime);
    const bool is_any = !impl.is_entered() && impl.nodes.size() != 1;
    api::Node& home = is_any ? *impl.nodes[below(impl.nodes.size())] : impl.current();
    home.on_context([&] { region = home.bulk.regions->expose(exposed.memory, with); });
    if (!region) {
        results_.hold(region.status().code() == Code::resource_exhausted,
                      Rule::overload_fails_at_once,
                      [&] { return owner + " exposes memory: " + region.status().to_string(); });
        simulation().in(1ms, [this, owner, is_read, life = exposed.owner_life] {
            if (!is_over_ && is_alive(owner, life))
                expose(owner, *simulation().runtime(owner), is_read);
        });
        return;
    }
    exposed.region = *std::move(region);
    exposed.ref = exposed.region.ref();
    ledger_.expose(std::move(exposed));
}

void BulkScenario::close(Exposed& exposed) {
    if (exposed.closed != never || !is_acting(exposed.owner) || !is_there(exposed)) return;
    exposed.closed = now();
    note(BulkLedger::describe(exposed) + " is closed");
    exposed.region.close([this, &exposed] {
        if (is_there(exposed)) on_fenced(exposed);
    });
}

void BulkScenario::on_fenced(Exposed& exposed) {
    ledger_.fenced(exposed, now(), chaos_->running_since(exposed.owner));
    if (!is_over_) expose(exposed.owner, *simulation().runtime(exposed.owner), exposed.is_read);
}

// ---- transfers ---------------------------------------------------------------------------------

void BulkScenario::plan() {
    for (const std::string& client : clients_) {
        for (std::uint32_t i = 0; i < transfers_per_client; ++i) {
            simulation().in(any_moment(), [this, client] {
                if (!simulation().is_up(client)) return;
                act_on_a_context(client, [&] { start_random_transfer(client); });
            });
        }
    }
    for (std::uint32_t i = 0; i < 4 * owners_.size(); ++i) {
        simulation().in(any_moment(), [this] { close(any_region()); });
    }
}

void BulkScenario::watch() {
    validate_bounds();
    simulation().in(watch_every, [this] { watch(); });
}

// Mostly of an open region, sometimes of a closed one.
void BulkScenario::start_random_transfer(const std::string& client) {
    if (!is_acting(client)) return;
    Exposed* exposed = &any_region();
    const int tries_max = below(8) == 0 ? 0 : 8;
    for (int tries = 0; tries < tries_max; ++tries) {
        if (exposed->closed == never && is_there(*exposed)) break;
        exposed = &any_region();
    }
    const std::uint64_t words = 1 + below(std::uint64_t{1} << below(13));
    put_or_get(client, *exposed, std::min<std::uint64_t>(words, transfer_words_max));
}

void BulkScenario::put_or_get(const std::string& client, Exposed& exposed, std::uint64_t words) {
    TransferRecord record;
    record.is_put = !exposed.is_read;
    record.client = client;
    record.client_life = simulation().starts(client);
    record.leg = context_here(client);
    record.was_connected = chaos_->health().is_connected(client, record.leg, exposed.owner);
    record.region = &exposed;
    record.words = words;
    record.first = record.is_put ? exposed.next_free : below(region_words - words + 1);
    if (record.first + words > region_words) return close(exposed);  // Full.
    const RegionRef ref = below(16) == 0 ? forge(exposed.ref, record) : exposed.ref;
    const Duration timeout = below(4) == 0 ? random_time(3s) : below(4) == 0 ? 10s : 3s;
    record.submitted = now();
    record.deadline = record.submitted + timeout;
    record.local = simulation().runtime(client)->allocate(words * sizeof(std::uint64_t)).value();
    start(ledger_.begin(std::move(record)), ref);
}

// As a client would that guesses, or requests more than its reference allows.
RegionRef BulkScenario::forge(const RegionRef& ref, TransferRecord& record) {
    RegionRef forged = ref;
    record.is_forged = true;
    switch (below(4)) {
        case 0: forged.key ^= std::uint64_t{1} << below(64); break;
        case 1: forged.generation += 2; break;
        case 2:  // Beyond its end.
            forged.length *= 2;
            record.first = region_words - below(record.words);
            break;
        default:  // In the other direction.
            record.is_put = !record.is_put;
            forged.access = record.is_put ? Access::write : Access::read;
            break;
    }
    return forged;
}

void BulkScenario::start(TransferRecord& record, const RegionRef& ref) {
    const auto done = [this, &record](const Status& status) { complete(record, status); };
    const Channel& channel = channels_[record.client][record.region->owner];
    const std::uint64_t offset = record.first * sizeof(std::uint64_t);
    const CallOptions with{.timeout = record.deadline - now()};
    record.operation = record.is_put ? channel.put(ref, offset, record.local, with, done)
                                     : channel.get(ref, offset, record.local, with, done);
    record.is_submitting = false;
    if (below(8) == 0) cancel_later(record);
    if (record.words < raced_words || below(2) == 0) return;
    // Between two pieces of it, if nothing delays them.
    const Duration soon(static_cast<std::int64_t>(below(raced_time.count())));
    simulation().in(soon, [this, &record] { close(*record.region); });
}

void BulkScenario::cancel_later(TransferRecord& record) {
    simulation().in(random_time(50ms), [this, &record] {
        if (record.is_complete || !is_acting(record.client)) return;
        if (!is_alive(record.client, record.client_life)) return;
        record.cancelled = now();
        channels_[record.client][record.region->owner].cancel_transfer(record.operation);
    });
}

void BulkScenario::complete(TransferRecord& record, const Status& status) {
    if (!is_alive(record.client, record.client_life)) {
        record.client_died = true;
        return;
    }
    const Waiting waiting = record.waiting();
    ledger_.on_complete(record, status, conditions_of(waiting), is_there(*record.region));
    if (status.ok()) chaos_->health().answered(waiting, now());
    if (!status.ok()) note(BulkLedger::describe(record));
    record.local = Buffer();
}

// ---- a run -------------------------------------------------------------------------------------

std::uint64_t BulkScenario::open() const {
    std::uint64_t all = 0;
    for (const auto& record : ledger_.transfers())
        all += !record->is_complete && !record->client_died;
    for (const auto& exposed : ledger_.regions()) {
        all += exposed->closed != never && exposed->fenced == never && is_there(*exposed);
    }
    return all;
}

void BulkScenario::validate_end() {
    for (const auto& exposed : ledger_.regions()) {
        if (is_there(*exposed)) ledger_.validate_region(*exposed);
    }
    ledger_.close();
    validate_none_left(Rule::regions_are_back, [](api::RuntimeImpl& impl) {
        return sum(impl, [](api::Node& node) { return node.bulk.regions->open_regions(); });
    });
    validate_rest();
}

SimRun BulkScenario::run() {
    begin_faults();
    plan();
    watch();
    simulation().run_for(fault_period);
    if (seed_ % 4 < 2) simulation().run_for(bulk_linger);
    chaos_->heal();
    is_over_ = true;
    // By index: hosts that start again expose more.
    for (std::size_t i = 0; i < ledger_.regions().size(); ++i) close(*ledger_.regions()[i]);
    simulation().run_until([this] { return open() == 0; }, bulk_calm);
    simulation().run_for(drain_time);
    validate_end();
    return report(ledger_.transfers().size(), ledger_.hash());
}

}  // namespace

SimRun run_bulk_scenario(std::uint64_t seed, const SimOptions& options) {
    return BulkScenario(seed, options).run();
}

}  // namespace weft::scenarios
