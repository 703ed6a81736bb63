// Calls of every kind among hosts under every fault: who got which answer, and what really ran.
#include <cstdio>
#include <cstring>
#include <map>

#include <weft/service.h>
#include <weft/sim.h>

#include "api/node.h"
#include "base/assert.h"
#include "sim/chaos.h"
#include "sim/ledger.h"
#include "sim/scenario.h"

namespace weft::tool {

namespace {

constexpr MethodId add_method("sim.Rpc/Add");
constexpr MethodId read_method("sim.Rpc/Read");
constexpr MethodId later_method("sim.Rpc/Later");
constexpr MethodId nested_method("sim.Rpc/Nested");
constexpr MethodId failing_method("sim.Rpc/Failing");
constexpr MethodId refused_method("sim.Rpc/Refused");
constexpr MethodId probe_method("sim.Rpc/Probe");

constexpr Duration trouble = 1500ms;
constexpr Duration linger = 4s;    // No new faults, but those that are there last.
constexpr Duration longest = 10s;  // Deadline.
constexpr Duration calm = longest + 2s;
constexpr Duration watch_every = 100ms;
constexpr std::uint32_t calls_per_client = 120;
constexpr std::size_t large_bytes = 100'000;

struct Message {
    std::uint64_t number = 0;
    std::uint64_t nonce = 0;
};

ByteView bytes_of(const Message& message) {
    return {reinterpret_cast<const std::byte*>(&message), sizeof message};
}

// The message, and for a large one bytes that no other has.
std::vector<std::byte> body_of(const Message& message, Work work) {
    std::vector<std::byte> body(work == Work::large ? large_bytes : sizeof message);
    std::memcpy(body.data(), &message, sizeof message);
    for (std::size_t at = sizeof message; at < body.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = message.nonce * (at + 1);
        std::memcpy(body.data() + at, &word, std::min(sizeof word, body.size() - at));
    }
    return body;
}

const MethodId& method_of(Work work) {
    switch (work) {
        case Work::read: return read_method;
        case Work::later: return later_method;
        case Work::nested: return nested_method;
        case Work::failing: return failing_method;
        case Work::refused: return refused_method;
        default: return add_method;
    }
}

class RpcScenario {
  public:
    RpcScenario(std::uint64_t seed, const SimOptions& options);
    SimRun run();

  private:
    struct Server;
    // A process that makes calls: what it has of its own.
    struct Caller {
        std::map<std::string, Channel> channels;
    };

    std::shared_ptr<void> start_server(const std::string& name, Runtime& runtime);
    std::shared_ptr<void> start_client(const std::string& name, Runtime& runtime);
    std::shared_ptr<Caller> make_caller(const std::string& name, Runtime& runtime);
    void plan_calls();
    void call_something(const std::string& client);
    void call(const std::string& client, const std::string& server, Work work, Duration timeout,
              Duration cancel_after);
    std::uint64_t start_call(const std::string& client, const std::string& server, Work work,
                             TimePoint deadline, std::function<void(const Status&)> then);
    void complete(std::uint64_t number, std::uint64_t nonce, const Status& status, ByteView reply);
    void converge();
    void probe_all(bool is_judged);
    void judge_rest();
    bool is_alive(const std::string& host, std::uint32_t life) const {
        return simulation_.is_up(host) && simulation_.lives(host) == life;
    }
    std::uint64_t below(std::uint64_t end) { return simulation_.random() % end; }
    Duration random_time(Duration most);
    void watch_open();
    void note(const std::string& what) const;

    const std::uint64_t seed_;
    const SimOptions& options_;
    Verdict verdict_;
    Ledger ledger_{verdict_};
    std::vector<std::string> servers_;
    std::vector<std::string> clients_;
    std::map<std::string, std::shared_ptr<Caller>> callers_;
    std::map<std::uint64_t, OperationId> operations_;
    std::unique_ptr<Chaos> chaos_;
    sim::Simulation simulation_;  // Its hosts use all of the above.
};

// ---- the service -------------------------------------------------------------------------------

struct RpcScenario::Server : Service {
    Server(RpcScenario& of, std::string at) : scenario(of), name(std::move(at)) {}

    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(add_method, [this](Call call) {
            if (begin(call)) call.reply(call.request());
        });
        registrar.add(read_method, [this](Call call) {
            if (begin(call)) call.reply(call.request());
        });
        registrar.add(later_method, [this](Call call) { answer_later(std::move(call)); });
        registrar.add(nested_method, [this](Call call) { ask_another(std::move(call)); });
        registrar.add(failing_method, [this](Call call) {
            if (begin(call)) call.fail(fail(Code::aborted, "as it was asked to"));
        });
        registrar.add(refused_method,
                      [](Call call) { call.fail(rejected(Code::aborted, "as always")); });
        registrar.add(probe_method, [](Call call) { call.reply(call.request()); });
    }

    std::optional<Message> begin(const Call& call) {
        Message message;
        if (call.request().size() < sizeof message) return std::nullopt;
        std::memcpy(&message, call.request().data(), sizeof message);
        if (!scenario.ledger_.executes(message.number, name, scenario.simulation_.now(),
                                       call.deadline())) {
            return std::nullopt;
        }
        return message;
    }

    void answer_later(Call call) {
        const auto message = begin(call);
        if (!message) return;
        call.on_cancel(
            [this, number = message->number] { scenario.ledger_.hears_of_cancel(number); });
        const auto held = std::make_shared<Call>(std::move(call));
        // It may be due when this process is gone.
        const auto answer = [&of = scenario, at = name, life = scenario.simulation_.lives(name),
                             held, m = *message] {
            if (of.is_alive(at, life)) held->reply(bytes_of(m));
        };
        scenario.simulation_.in(scenario.random_time(300ms), answer);
    }

    void ask_another(Call call) {
        const auto message = begin(call);
        if (!message) return;
        const auto held = std::make_shared<Call>(std::move(call));
        const auto& servers = scenario.servers_;
        const std::string& other = servers[scenario.below(servers.size())];
        const TimePoint deadline = held->deadline();
        scenario.start_call(name, other, Work::add, deadline,
                            [held, m = *message](const Status& s) {
                                if (held->answered()) return;
                                if (s.ok()) {
                                    held->reply(bytes_of(m));
                                } else {
                                    held->fail(s);
                                }
                            });
    }

    RpcScenario& scenario;
    const std::string name;
};

// ---- hosts -------------------------------------------------------------------------------------

RpcScenario::RpcScenario(std::uint64_t seed, const SimOptions& options)
    : seed_(seed), options_(options), simulation_(seed, {.judges_access = seed % 2 == 0}) {
    const std::uint32_t servers = std::max(2u, options.nodes / 4);
    const std::uint32_t clients = std::max(2u, options.nodes) - servers;
    for (std::uint32_t i = 0; i < servers; ++i) servers_.push_back("server" + std::to_string(i));
    for (std::uint32_t i = 0; i < std::max(clients, 1u); ++i) {
        clients_.push_back("client" + std::to_string(i));
    }
    RuntimeOptions with;
    with.log_level = LogLevel::off;
    for (const std::string& name : servers_) {
        simulation_.add(
            name, [this, name](Runtime& runtime) { return start_server(name, runtime); }, with);
    }
    for (const std::string& name : clients_) {
        simulation_.add(
            name, [this, name](Runtime& runtime) { return start_client(name, runtime); }, with);
    }
}

std::shared_ptr<RpcScenario::Caller> RpcScenario::make_caller(const std::string& name,
                                                              Runtime& runtime) {
    auto caller = std::make_shared<Caller>();
    for (const std::string& server : servers_) {
        caller->channels[server] = runtime.connect("sim://" + server).value();
    }
    callers_[name] = caller;
    return caller;
}

std::shared_ptr<void> RpcScenario::start_server(const std::string& name, Runtime& runtime) {
    struct State {
        State(RpcScenario& scenario, const std::string& name, Runtime& runtime)
            : service(scenario, name), caller(scenario.make_caller(name, runtime)) {}
        Server service;
        std::shared_ptr<Caller> caller;
    };
    auto state = std::make_shared<State>(*this, name, runtime);
    const Status served = runtime.serve(state->service, "sim://" + name);
    WEFT_ASSERT(served.ok());
    return state;
}

std::shared_ptr<void> RpcScenario::start_client(const std::string& name, Runtime& runtime) {
    return make_caller(name, runtime);
}

// ---- calls -------------------------------------------------------------------------------------

Duration RpcScenario::random_time(Duration most) {
    // As many short ones as long ones, by their magnitude.
    const std::uint64_t bits = below(21);
    return std::min(most, Duration(static_cast<std::int64_t>(1000 + below(2000ull << bits))));
}

void RpcScenario::plan_calls() {
    for (const std::string& client : clients_) {
        for (std::uint32_t i = 0; i < calls_per_client;) {
            const std::uint32_t together = below(10) == 0 ? 8 : 1;
            const Duration at(
                static_cast<std::int64_t>(below(static_cast<std::uint64_t>(trouble.count()))));
            simulation_.in(at, [this, client, together] {
                for (std::uint32_t k = 0; k < together; ++k) call_something(client);
            });
            i += together;
        }
    }
}

void RpcScenario::call_something(const std::string& client) {
    if (!simulation_.is_up(client)) return;
    static constexpr Work mix[] = {Work::add,   Work::add,    Work::add,     Work::read,
                                   Work::later, Work::nested, Work::failing, Work::refused};
    const Work work = below(50) == 0 ? Work::large : mix[below(std::size(mix))];
    const Duration timeout = below(4) == 0 ? random_time(3s) : below(4) == 0 ? longest : 3s;
    const Duration cancel_after = below(12) == 0 ? random_time(200ms) : Duration::max();
    call(client, servers_[below(servers_.size())], work, timeout, cancel_after);
}

void RpcScenario::call(const std::string& client, const std::string& server, Work work,
                       Duration timeout, Duration cancel_after) {
    const std::uint64_t number = start_call(
        client, server, work, saturating_add(simulation_.now(), timeout), [](const Status&) {});
    if (cancel_after == Duration::max()) return;
    simulation_.in(cancel_after, [this, number, client, server] {
        Deed& deed = ledger_.at(number);
        if (deed.is_complete || !is_alive(client, deed.client_life)) return;
        deed.cancelled = simulation_.now();
        callers_[client]->channels[server].cancel_call(operations_[number]);
    });
}

std::uint64_t RpcScenario::start_call(const std::string& client, const std::string& server,
                                      Work work, TimePoint deadline,
                                      std::function<void(const Status&)> then) {
    Deed deed;
    deed.work = work;
    deed.client = client;
    deed.client_life = simulation_.lives(client);
    deed.server = server;
    deed.submitted = simulation_.now();
    deed.deadline = deadline;
    const std::uint64_t number = ledger_.begin(std::move(deed));
    const Message message{number, simulation_.random()};
    const std::vector<std::byte> body = body_of(message, work);
    const Duration timeout = deadline == never ? no_timeout : deadline - simulation_.now();
    const auto done = [this, number, nonce = message.nonce, then = std::move(then)](
                          const Status& status, ByteView reply) {
        complete(number, nonce, status, reply);
        if (!ledger_.at(number).client_died) then(status);
    };
    operations_[number] = callers_[client]->channels[server].call(
        method_of(work), body, {.timeout = timeout > 0ns ? timeout : -1ns}, done);
    ledger_.at(number).is_submitting = false;
    return number;
}

void RpcScenario::complete(std::uint64_t number, std::uint64_t nonce, const Status& status,
                           ByteView reply) {
    const Deed& deed = ledger_.at(number);
    if (!is_alive(deed.client, deed.client_life)) return ledger_.dies(number);
    const std::vector<std::byte> wanted = body_of({number, nonce}, deed.work);
    const bool is_own = std::equal(reply.begin(), reply.end(), wanted.begin(), wanted.end());
    ledger_.completes(number, status, is_own, simulation_.now(), chaos_->awake_since(deed.client),
                      chaos_->apart_since(deed.client, deed.server));
    if (options_.verbose && !status.ok()) note(ledger_.describe(number));
}

// Those that are still open have to end in time, too.
void RpcScenario::watch_open() {
    for (std::uint64_t number = 0; number < ledger_.size(); ++number) {
        const Deed& deed = ledger_.at(number);
        if (deed.is_complete || !is_alive(deed.client, deed.client_life)) continue;
        ledger_.is_open(number, simulation_.now(), chaos_->awake_since(deed.client),
                        chaos_->apart_since(deed.client, deed.server));
    }
    simulation_.in(watch_every, [this] { watch_open(); });
}

void RpcScenario::note(const std::string& what) const {
    if (!options_.verbose) return;
    std::fprintf(stderr, "%9.3f ms  %s\n",
                 static_cast<double>(simulation_.now().time_since_epoch().count()) / 1e6,
                 what.c_str());
}

// ---- a run -------------------------------------------------------------------------------------

void RpcScenario::converge() {
    chaos_->heal();
    simulation_.run_until([this] { return ledger_.open() == 0; }, calm);
    probe_all(false);  // Finds out which connections are gone.
    probe_all(true);
    // Back-pressure alone costs nobody an answer.
    simulation_.refuse(0.3);
    probe_all(true);
    simulation_.refuse(0);
}

// Everybody asks everybody.
void RpcScenario::probe_all(bool is_judged) {
    struct Probe {
        std::string from, to;
        Status status = fail(Code::internal, "no answer");
    };
    std::vector<Probe> probes;
    for (const std::string& client : clients_) {
        for (const std::string& server : servers_) probes.push_back({client, server});
    }
    std::size_t left = probes.size();
    for (Probe& probe : probes) {
        callers_[probe.from]->channels[probe.to].call(probe_method, as_bytes("?"), {.timeout = 5s},
                                                      [&](const Status& status, ByteView) {
                                                          probe.status = status;
                                                          --left;
                                                      });
    }
    simulation_.run_until([&] { return left == 0; }, calm);
    WEFT_ASSERT(left == 0);
    for (const Probe& probe : probes) {
        verdict_.hold(probe.status.ok() || !is_judged, Rule::all_answer_again, [&] {
            return probe.from + " to " + probe.to + ": " + probe.status.to_string();
        });
    }
}

void RpcScenario::judge_rest() {
    simulation_.run_for(2s);
    ledger_.close();
    for (const auto* hosts : {&servers_, &clients_}) {
        for (const std::string& name : *hosts) {
            api::Node& node = simulation_.runtime(name)->node();
            const auto none = [&](std::uint64_t left, Rule rule) {
                verdict_.hold(left == 0, rule,
                              [&] { return std::to_string(left) + " on " + name; });
            };
            none(node.client.in_flight(), Rule::calls_are_back);
            none(node.server.executing(), Rule::handlers_are_back);
            none(node.bulk.transfers.in_flight(), Rule::transfers_are_back);
            none(node.context.waiting_frames(), Rule::queues_are_empty);
        }
    }
    verdict_.hold(simulation_.late_accesses() == 0, Rule::no_late_access,
                  [&] { return std::to_string(simulation_.late_accesses()) + " times"; });
    std::uint64_t complete = 0, died = 0;
    for (std::uint64_t i = 0; i < ledger_.size(); ++i) {
        complete += ledger_.at(i).is_complete;
        died += ledger_.at(i).client_died && !ledger_.at(i).is_complete;
    }
    verdict_.hold(complete + died == ledger_.size(), Rule::counts_balance, [&] {
        return std::to_string(ledger_.size()) + " submitted, " + std::to_string(complete) +
               " completed, " + std::to_string(died) + " died";
    });
}

SimRun RpcScenario::run() {
    const TimePoint start = simulation_.now();
    std::vector<std::string> hosts = servers_;
    hosts.insert(hosts.end(), clients_.begin(), clients_.end());
    chaos_ = std::make_unique<Chaos>(simulation_, std::move(hosts), trouble,
                                     [this](const std::string& what) { note(what); });
    plan_calls();
    watch_open();
    simulation_.run_for(trouble);
    if (seed_ % 4 == 0) simulation_.run_for(linger);
    converge();
    judge_rest();
    SimRun run;
    run.seed = seed_;
    run.calls = ledger_.size();
    run.faults = simulation_.faults();
    run.fault_kinds = chaos_->kinds();
    run.trace_hash = simulation_.trace_hash() ^ ledger_.hash();
    run.virtual_time = simulation_.now() - start;
    run.broken = verdict_.broken();
    return run;
}

}  // namespace

SimRun run_rpc_scenario(std::uint64_t seed, const SimOptions& options) {
    return RpcScenario(seed, options).run();
}

}  // namespace weft::tool
