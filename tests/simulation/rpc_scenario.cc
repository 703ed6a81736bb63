// Calls of every kind among hosts under every fault: checks each reply, and which handlers ran.
#include <cstring>
#include <map>

#include <weft/service.h>

#include "base/assert.h"
#include "simulation/ledger.h"
#include "simulation/many_clients.h"
#include "simulation/rpc_messages.h"
#include "simulation/stage.h"
#include "simulation/submitted_work.h"

namespace weft::scenarios {

namespace {

constexpr Duration rpc_linger = 4s;  // No new faults; existing ones last.
constexpr Duration longest = 10s;    // Deadline.
constexpr Duration rpc_calm = longest + 2s;
constexpr Duration notice_max = 50ms;
constexpr std::uint32_t calls_per_client = 120;
constexpr std::uint32_t storms_max = 2;  // In each seed.
constexpr std::uint32_t late_calls = 60;
constexpr Duration late_time = 1s;
constexpr std::uint32_t storm_calls = 200;

class RpcScenario : private ScenarioBase {
  public:
    RpcScenario(std::uint64_t seed, const SimOptions& options);
    ~RpcScenario() { stop_all(); }
    SimRun run();

  private:
    struct Server;
    // A process that makes calls, with its own channels.
    struct Caller {
        std::map<std::string, Channel> channels;
        ConnectOptions with;
        Channel channel_of(const CallRecord& record) {
            const Channel& channel = channels[record.server];
            return record.pinned ? channel.on(*record.pinned) : channel;
        }
    };
    static constexpr unsigned contexts_max = 5;
    // A call over several connections can't tell which one it uses: a number that no other has.
    unsigned leg_of(const CallRecord& record) const;

    std::shared_ptr<void> start_server(const std::string& name, Runtime& runtime);
    std::shared_ptr<Caller> make_caller(const std::string& name, Runtime& runtime);
    void plan_calls();
    void start_random_call(const std::string& client, const std::string& server);
    void storm();
    void cancel(std::uint64_t number);
    const std::string& any_server() { return servers_[below(servers_.size())]; }
    void call(const std::string& client, const std::string& server, Work work, Duration timeout,
              Duration cancel_after);
    std::uint64_t start_call(CallRecord record, std::function<void(const Status&)> then);
    void expect_cancel_notice(std::uint64_t number);
    void on_slept(std::uint64_t number);
    Conditions conditions_of(const CallRecord& record) const {
        return ScenarioBase::conditions_of(record.waiting());
    }
    void complete(std::uint64_t number, std::uint64_t nonce, const Status& status, ByteView reply);
    void wait_for_calls();
    void converge();
    void probe_all(bool is_checked);
    void watch_open();
    void validate_peers();
    void reply_after(Duration time, const std::string& server, std::uint32_t life,
                     const std::shared_ptr<Call>& call, const Message& message);

    Ledger ledger_{results_};
    ManyClients many_clients_{
        simulation(), results_,
        [this](const std::string& client, const std::string& server) -> const Channel& {
            return callers_[client]->channels[server];
        }};
    std::vector<std::string> servers_;
    std::vector<std::string> clients_;
    std::map<std::string, std::shared_ptr<Caller>> callers_;
    std::map<std::uint64_t, OperationId> operations_;
};

// ---- the service -------------------------------------------------------------------------------

struct RpcScenario::Server : Service {
    Server(RpcScenario& of, std::string at, Runtime& on)
        : scenario(of), name(std::move(at)), runtime(on) {}

    void register_methods(MethodRegistrar& registrar) override {
        for (const MethodId& method : {add_method, read_method}) {
            registrar.add(method, [this](Call call) {
                if (const auto message = begin(call)) {
                    scenario.ledger_.on_reply(message->number, {}, scenario.now());
                    call.reply(call.request());
                }
            });
        }
        registrar.add(later_method, [this](Call call) { reply_later(std::move(call)); });
        registrar.add(nested_method, [this](Call call) { call_nested(std::move(call)); });
        registrar.add(elsewhere_method, [this](Call call) { work_elsewhere(std::move(call)); });
        registrar.add(failing_method, [this](Call call) {
            refuse(std::move(call),
                   fail(Code::aborted, "a planned failure").with_effect(Effect::applied));
        });
        registrar.add(refused_method, [this](Call call) {
            refuse(std::move(call), rejected(Code::aborted, "a planned rejection"));
        });
        registrar.add(probe_method, [](Call call) { call.reply(call.request()); });
        scenario.many_clients_.add_method(registrar, name);
    }

    std::optional<Message> begin(const Call& call) {
        Message message;
        if (call.request().size() < sizeof message) return std::nullopt;
        std::memcpy(&message, call.request().data(), sizeof message);
        const unsigned here = impl_of(runtime).current().index;
        if (!scenario.ledger_.on_execute(message.number, name, here, scenario.now(),
                                         call.deadline())) {
            return std::nullopt;
        }
        return message;
    }

    void on_cancelled(Call& call, std::uint64_t number) {
        call.on_cancel([this, number] {
            scenario.ledger_.on_cancel_notice(number,
                                              scenario.conditions_of(scenario.ledger_.at(number)));
        });
    }

    void refuse(Call call, const Status& why) {
        const auto message = begin(call);
        if (!message) return;
        scenario.ledger_.on_reply(message->number, why, scenario.now());
        call.fail(why);
    }

    void reply_later(Call call) {
        const auto message = begin(call);
        if (!message) return;
        on_cancelled(call, message->number);
        const auto held = std::make_shared<Call>(std::move(call));
        scenario.reply_after(scenario.random_time(300ms), name, scenario.simulation().starts(name),
                             held, *message);
    }

    void call_nested(Call call) {
        const auto message = begin(call);
        if (!message) return;
        on_cancelled(call, message->number);
        const auto held = std::make_shared<Call>(std::move(call));
        static constexpr Work mix[] = {Work::add, Work::read, Work::later, Work::nested,
                                       Work::failing};
        const Work work = mix[scenario.below(std::size(mix))];
        CallRecord inner = record_of(work, name, scenario.any_server());
        inner.deadline = held->deadline();
        inner.parent = message->number;
        scenario.start_call(std::move(inner), [this, held, m = *message](const Status& s) {
            if (held->answered()) return;
            scenario.ledger_.on_reply(m.number, s, scenario.now());
            if (s.ok()) {
                held->reply(bytes_of(m));
            } else {
                held->fail(s);
            }
        });
    }

    void work_elsewhere(Call call) {
        const auto message = begin(call);
        if (!message) return;
        on_cancelled(call, message->number);
        const auto there = static_cast<unsigned>(scenario.below(runtime.contexts()));
        const Duration pause = scenario.random_time(300ms);
        // At once, so that it is in the scope of the call.
        detail::run_detached(
            work_there(std::make_shared<Call>(std::move(call)), there, pause, *message), [] {});
    }
    Task<void> work_there(std::shared_ptr<Call> held, unsigned there, Duration pause,
                          Message message) {
        const Status slept = co_await sleep_elsewhere(scenario.results_, runtime, there, pause);
        scenario.on_slept(message.number);
        if (held->answered()) co_return;
        scenario.ledger_.on_reply(message.number, slept, scenario.now());
        slept.ok() ? held->reply(bytes_of(message)) : held->fail(slept);
    }

    RpcScenario& scenario;
    const std::string name;
    Runtime& runtime;
};

// By a live process, when it is not paused.
void RpcScenario::reply_after(Duration time, const std::string& server, std::uint32_t life,
                              const std::shared_ptr<Call>& call, const Message& message) {
    simulation().in(time, [this, server, life, call, message] {
        if (!is_alive(server, life)) return;
        if (!is_acting(server)) return reply_after(1ms, server, life, call, message);
        ledger_.on_reply(message.number, {}, now());
        call->reply(bytes_of(message));
    });
}

// ---- hosts -------------------------------------------------------------------------------------

RpcScenario::RpcScenario(std::uint64_t seed, const SimOptions& options)
    : ScenarioBase(seed, options) {
    simulation().watch_reads(
        [this](const std::string& owner, const std::string& reader, ByteView memory) {
            ledger_.on_memory_shown(owner, reader, memory);
        });
    const std::uint32_t servers = std::max(2u, options.nodes / 4);
    for (std::uint32_t i = 0; i < servers; ++i) servers_.push_back("server" + std::to_string(i));
    add_hosts(
        "server", servers,
        [this](const std::string& name, Runtime& runtime) { return start_server(name, runtime); },
        Contexts::some);
    clients_ = add_hosts(
        "client", std::max(options.nodes, servers + 1) - servers,
        [this](const std::string& name, Runtime& runtime) { return make_caller(name, runtime); },
        Contexts::some);
}

std::shared_ptr<RpcScenario::Caller> RpcScenario::make_caller(const std::string& name,
                                                              Runtime& runtime) {
    auto caller = std::make_shared<Caller>();
    caller->with.spread = below(4) == 0 ? 3 : 1;
    for (const std::string& server : servers_) {
        caller->channels[server] = runtime.connect("sim://" + server, caller->with).value();
    }
    callers_[name] = caller;
    return caller;
}

std::shared_ptr<void> RpcScenario::start_server(const std::string& name, Runtime& runtime) {
    struct State {
        State(RpcScenario& scenario, const std::string& name, Runtime& runtime)
            : service(scenario, name, runtime), caller(scenario.make_caller(name, runtime)) {}
        Server service;
        std::shared_ptr<Caller> caller;
    };
    auto state = std::make_shared<State>(*this, name, runtime);
    ledger_.on_start(name, runtime.contexts(), now());
    // All contexts are turned on one thread.
    const Status served = runtime.serve(shared(state->service), "sim://" + name);
    WEFT_ASSERT(served.ok());
    return state;
}

// ---- calls -------------------------------------------------------------------------------------

void RpcScenario::plan_calls() {
    for (const std::string& client : clients_) {
        for (std::uint32_t i = 0; i < calls_per_client;) {
            const std::uint32_t together = below(10) == 0 ? 8 : 1;
            simulation().in(any_moment(), [this, client, together] {
                for (std::uint32_t k = 0; k < together; ++k)
                    start_random_call(client, any_server());
            });
            i += together;
        }
    }
    for (std::uint32_t i = below(storms_max + 1); i > 0; --i) {
        simulation().in(any_moment(), [this] { storm(); });
    }
}

// Many calls at once to one server, half of which are cancelled in the middle.
void RpcScenario::storm() {
    const std::string client = clients_[below(clients_.size())];
    const std::string server = any_server();
    note("a storm from " + client + " to " + server);
    const std::uint64_t first = ledger_.size();
    for (std::uint32_t i = 0; i < storm_calls; ++i) start_random_call(client, server);
    const std::uint64_t end = ledger_.size();
    const Duration step = random_time(1ms) / storm_calls;
    for (std::uint64_t number = first; number < end; number += 2) {
        simulation().in(step * static_cast<int>(number - first),
                        [this, number] { cancel(number); });
    }
}

void RpcScenario::start_random_call(const std::string& client, const std::string& server) {
    if (!is_acting(client)) return;
    static constexpr Work mix[] = {Work::add,     Work::add,     Work::add,
                                   Work::read,    Work::later,   Work::nested,
                                   Work::failing, Work::refused, Work::elsewhere};
    const Work work = below(50) == 0 ? Work::large : mix[below(std::size(mix))];
    const Duration most = longest + endurance();
    const Duration timeout = below(4) == 0 ? random_time(3s) : below(4) == 0 ? most : 3s;
    const Duration cancel_after = below(10) == 0 ? random_time(200ms) : Duration::max();
    act_on_a_context(client, [&] { call(client, server, work, timeout, cancel_after); });
}

void RpcScenario::call(const std::string& client, const std::string& server, Work work,
                       Duration timeout, Duration cancel_after) {
    CallRecord begun = record_of(work, client, server);
    begun.deadline = saturating_add(now(), timeout);
    const std::uint64_t number = start_call(std::move(begun), [](const Status&) {});
    if (cancel_after == Duration::max()) return;
    simulation().in(cancel_after, [this, number] { cancel(number); });
}

void RpcScenario::cancel(std::uint64_t number) {
    CallRecord& record = ledger_.at(number);
    if (!is_acting(record.client) || !is_alive(record.client, record.client_life)) return;
    // The id of a completed call must not name another call.
    if (!record.is_complete) record.cancelled = std::min(record.cancelled, now());
    simulation().act_as(record.client, [&] {
        callers_[record.client]->channel_of(record).cancel_call(operations_[number]);
    });
}

unsigned RpcScenario::leg_of(const CallRecord& record) const {
    const unsigned here = context_here(record.client);
    const bool is_alone = record.pinned || callers_.at(record.client)->with.spread == 1;
    if (!is_alone) return 1000 + static_cast<unsigned>(ledger_.size());
    return here + (record.pinned ? 1 + *record.pinned : 0) * contexts_max;
}

std::uint64_t RpcScenario::start_call(CallRecord record, std::function<void(const Status&)> then) {
    const std::string client = record.client;
    const Work work = record.work;
    const TimePoint deadline = record.deadline;
    record.client_life = simulation().starts(client);
    if (below(16) == 0) record.pinned = static_cast<unsigned>(below(contexts_max));
    record.leg = leg_of(record);
    record.was_connected = chaos_->health().is_connected(client, record.leg, record.server);
    record.submitted = now();
    const std::uint64_t number = ledger_.begin(std::move(record));
    const Message message{number, simulation().random()};
    const std::vector<std::byte> body = body_of(message, work);
    const Duration timeout = deadline == never ? no_timeout : deadline - now();
    const auto done = [this, number, nonce = message.nonce, then = std::move(then)](
                          const Status& status, ByteView reply) {
        complete(number, nonce, status, reply);
        if (!ledger_.at(number).client_died) then(status);
    };
    const Channel channel = callers_[client]->channel_of(ledger_.at(number));
    operations_[number] = channel.call(method_of(work), body,
                                       {.timeout = timeout > 0ns ? timeout : -1ns,
                                        .idempotent = work == Work::read,
                                        .priority = static_cast<std::uint8_t>(number % 8)},
                                       done);
    ledger_.at(number).is_submitting = false;
    return number;
}

void RpcScenario::complete(std::uint64_t number, std::uint64_t nonce, const Status& status,
                           ByteView reply) {
    const CallRecord& record = ledger_.at(number);
    if (!is_alive(record.client, record.client_life)) return ledger_.on_client_death(number);
    const std::vector<std::byte> wanted = body_of({number, nonce}, record.work);
    const bool is_own = std::equal(reply.begin(), reply.end(), wanted.begin(), wanted.end());
    ledger_.on_complete(number, status, is_own, conditions_of(record));
    if (status.ok()) chaos_->health().answered(record.waiting(), now());
    if (status.code() == Code::cancelled || status.code() == Code::deadline_exceeded) {
        expect_cancel_notice(number);
    }
    if (!status.ok()) note(ledger_.describe(number));
}

// After a while the handler must have been notified.
void RpcScenario::expect_cancel_notice(std::uint64_t number) {
    if (!is_notified(ledger_.at(number).work)) return;
    simulation().in(notice_max, [this, number] {
        ledger_.on_caller_gave_up(number, conditions_of(ledger_.at(number)).is_calm);
    });
}

// The work of a handler that was notified of a cancel ends soon.
void RpcScenario::on_slept(std::uint64_t number) {
    const CallRecord& record = ledger_.at(number);
    results_.hold(record.heard == never || now() - record.heard <= notice_max ||
                      !conditions_of(record).is_calm,
                  Rule::submit_is_cancelled, [&] { return ledger_.describe(number); });
}

// Open calls have to end in time, too.
void RpcScenario::watch_open() {
    for (std::uint64_t number = 0; number < ledger_.size(); ++number) {
        const CallRecord& record = ledger_.at(number);
        if (record.is_complete || !is_alive(record.client, record.client_life)) continue;
        ledger_.is_open(number, {now(), chaos_->running_since(record.client),
                                 no_reply_since(record.waiting())});
    }
    validate_bounds();
    validate_peers();
    simulation().in(watch_every, [this] { watch_open(); });
}

// ---- a run -------------------------------------------------------------------------------------

// One host is paused until the others have forgotten all state of it; then it continues with the
// messages in its queues, and is called again at once.
void RpcScenario::wait_for_calls() {
    const auto begins = [this] { return !chaos_->enduring().empty(); };
    simulation().run_until(begins, 1s);
    simulation().run_until([this] { return !chaos_->is_enduring(); }, endurance());
    for (std::uint32_t i = 0; i < late_calls; ++i) {
        simulation().in(random_time(late_time), [this] {
            const std::string& host = chaos_->enduring();
            const bool is_client = callers_.contains(host) && below(2) == 0;
            start_random_call(is_client ? host : clients_[below(clients_.size())], any_server());
        });
    }
    simulation().run_for(late_time);
}

void RpcScenario::converge() {
    chaos_->heal();
    simulation().run_until([this] { return ledger_.open() == 0; }, rpc_calm);
    probe_all(false);  // Detects lost connections.
    probe_all(true);
    simulation().refuse(0.3);
    probe_all(true);
    simulation().refuse(0);
}

// Every client calls every server, by all of its connections.
void RpcScenario::probe_all(bool is_checked) {
    struct Probe {
        std::string from, to;
        std::optional<Status> status{};
    };
    const auto probes = std::make_shared<std::vector<Probe>>();  // Completions may run later.
    for (const std::string& client : clients_) {
        const std::size_t times = callers_[client]->with.spread == 1 ? 1 : 8;
        for (const std::string& server : servers_) {
            probes->insert(probes->end(), times, {.from = client, .to = server});
        }
    }
    for (std::size_t i = 0; i < probes->size(); ++i) {
        const Probe& probe = (*probes)[i];
        callers_[probe.from]->channels[probe.to].call(
            probe_method, as_bytes("?"), {.timeout = 5s},
            [probes, i](const Status& status, ByteView) { (*probes)[i].status = status; });
    }
    simulation().run_until(
        [&] {
            return std::all_of(probes->begin(), probes->end(),
                               [](const Probe& probe) { return probe.status.has_value(); });
        },
        rpc_calm);
    for (const Probe& probe : *probes) {
        const auto seen = [&] {
            return "a probe from " + probe.from + " to " + probe.to + ": " +
                   (probe.status ? probe.status->to_string() : "no answer");
        };
        results_.hold(probe.status.has_value(), Rule::all_complete, seen);
        results_.hold(!is_checked || (probe.status && probe.status->ok()),
                      Rule::all_servers_recover, seen);
    }
}

// By the counters of the client: each channel has a budget of its own.
void RpcScenario::validate_peers() {
    for_each_runtime([this](const std::string& name, api::RuntimeImpl& impl) {
        for (const auto& node : impl.nodes) {
            const rpc::Client::Counters& counts = node->client.counters();
            const std::uint64_t most = 10 * node->client.sessions() + counts.completed[0] / 10;
            results_.hold(counts.retried <= most, Rule::retries_keep_budget, [&] {
                return std::to_string(counts.retried) + " retries of " + name + ", of at most " +
                       std::to_string(most);
            });
        }
    });
}

SimRun RpcScenario::run() {
    begin_faults();
    if (endurance() > 0s) chaos_->pause_long(all_hosts(), fault_period, endurance());
    plan_calls();
    watch_open();
    simulation().run_for(fault_period);
    if (seed_ % 4 == 0) simulation().run_for(rpc_linger);
    if (endurance() > 0s) wait_for_calls();
    converge();
    if (seed_ % 4 == 2) many_clients_.validate_shares(clients_, any_server());
    if (seed_ % 4 == 1) many_clients_.validate_end(clients_, any_server());
    if (seed_ % 4 == 3) many_clients_.validate_short_lived_clients();
    simulation().run_for(drain_time);
    if (seed_ % 4 == 0) many_clients_.expose_fresh_pages(clients_, servers_);
    expire_sessions();
    ledger_.close();
    validate_calls();
    validate_rest();
    return report(ledger_.size(), ledger_.hash());
}

}  // namespace

SimRun run_rpc_scenario(std::uint64_t seed, const SimOptions& options) {
    return RpcScenario(seed, options).run();
}

}  // namespace weft::scenarios
