#include "simulation/many_clients.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "api/runtime_impl.h"
#include "rpc/channel_impl.h"

namespace weft::scenarios {

namespace {

constexpr MethodId many_clients_method("sim.Rpc/Crowd");
constexpr MethodId short_lived_method("sim.Rpc/Visit");
constexpr std::size_t request_bytes = 56 * 1024;  // In one message.
constexpr std::uint32_t calls_at_once = 4;
// A turn takes that many microseconds: meanwhile every client sends again.
constexpr unsigned busy_slowness = 100;
constexpr Duration busy_time = 4ms;
constexpr Duration crowd_patience = 20s;  // Far more than any call here takes.

constexpr std::uint32_t pending_replies_each = 8;
constexpr std::uint32_t reply_bytes_max = 60 * 1024;
constexpr std::uint32_t rendezvous_reply_bytes = 100'000;
constexpr Duration answers_within = 15ms;
constexpr Duration drains_after = 10ms;
constexpr Duration reads_again_after = 300ms;

constexpr Duration call_interval = 2ms;
constexpr std::uint32_t calls_before_cut = 12;
constexpr Duration late_link = 5ms;
// The slowest client reads again, and its replies arrive.
constexpr Duration ends_within = answers_within + reads_again_after + drains_after + 1s;
// A paused client counts as lost. Below drain_timeout.
constexpr Duration given_up_within = 3s;

const std::string short_lived_server = "visited";
constexpr std::uint32_t visitors = 4;
constexpr std::size_t visit_filler_bytes = 60'000;  // Of calls that only fill the connection.
constexpr Duration stays_for = 20ms;
constexpr Duration visit_takes = 400ms;  // In its handler, at most.
constexpr Duration visits_before_end = 60ms;
constexpr Duration hears_within = 200ms;  // The loss of a process is detected after 3 s.
constexpr Duration visited_ends_within = visit_takes + 200ms;

constexpr std::uint32_t pages_each = 2;
constexpr std::size_t page_bytes = 128 * 1024;
constexpr Duration fences_within = 1s;

// The request of a call.
struct ReplyRequest {
    std::uint32_t number = 0;
    std::uint32_t bytes = 0;           // 0: an empty reply at once.
    std::uint32_t sharer = no_sharer;  // A client that wants its share.

    static constexpr std::uint32_t no_sharer = 0xffffffff;
};

std::vector<std::byte> reply_of(std::uint32_t number, std::uint32_t bytes) {
    std::vector<std::byte> reply(bytes);
    for (std::size_t at = 0; at + sizeof number <= bytes; at += sizeof number) {
        std::memcpy(reply.data() + at, &number, sizeof number);
    }
    return reply;
}

}  // namespace

void ManyClients::add_method(MethodRegistrar& registrar, const std::string& server) {
    registrar.add(many_clients_method,
                  [this, server](Call call) { answer(std::move(call), server); });
}

void ManyClients::answer(Call call, const std::string& server) {
    ReplyRequest reply_request;
    if (call.request().size() < sizeof reply_request) return;
    std::memcpy(&reply_request, call.request().data(), sizeof reply_request);
    if (reply_request.sharer != ReplyRequest::no_sharer) {
        const unsigned context = impl_of(*simulation_.runtime(server)).current().index;
        ++served_[context][reply_request.sharer];
    }
    if (reply_request.bytes == 0) {
        if (reply_request.number != 0) calls_during_end_[reply_request.number - 1].has_run = true;
        return call.reply({});
    }
    const std::uint32_t life = simulation_.starts(server);
    const auto held = std::make_shared<Call>(std::move(call));
    simulation_.in(up_to(answers_within), [this, server, life, held, reply_request] {
        if (!simulation_.is_up(server) || simulation_.starts(server) != life) return;
        pending_replies_[reply_request.number].answered = simulation_.now();
        held->reply(reply_of(reply_request.number, reply_request.bytes));
    });
}

// ---- shares ------------------------------------------------------------------------------------

void ManyClients::call_repeatedly(std::uint32_t client, const Names& clients,
                                  const std::string& server, TimePoint end) {
    std::vector<std::byte> body(request_bytes);
    const ReplyRequest wanted{.sharer = client};
    std::memcpy(body.data(), &wanted, sizeof wanted);
    ++open_;
    channels_(clients[client], server)
        .call(many_clients_method, body, {.timeout = crowd_patience},
              [this, client, &clients, server, end](const Status& status, ByteView) {
                  --open_;
                  if (!status.ok() || simulation_.now() >= end) return;
                  call_repeatedly(client, clients, server, end);
              });
}

void ManyClients::validate_shares(const Names& clients, const std::string& server) {
    served_.clear();
    simulation_.slow_down(server, busy_slowness);
    const TimePoint end = simulation_.now() + busy_time;
    for (std::uint32_t client = 0; client < clients.size(); ++client) {
        for (std::uint32_t i = 0; i < calls_at_once; ++i) {
            call_repeatedly(client, clients, server, end);
        }
    }
    simulation_.run_until([this] { return open_ == 0; }, crowd_patience);
    simulation_.slow_down(server, 1);
    // A client that several contexts serve gets at least its share of one.
    std::map<std::uint32_t, std::uint64_t> own, share;
    for (const auto& [context, counts] : served_) {
        std::uint64_t all = 0;
        for (const auto& [client, served] : counts) all += served;
        for (const auto& [client, served] : counts) {
            own[client] += served;
            const auto found = share.try_emplace(client, all / counts.size()).first;
            found->second = std::min(found->second, all / counts.size());
        }
    }
    for (std::uint32_t client = 0; client < clients.size(); ++client) {
        results_.hold(own[client] > 0 && 2 * own[client] >= share[client], Rule::shares_are_fair,
                      [&] {
                          return server + " served " + clients[client] + " " +
                                 std::to_string(own[client]) + " times, and " +
                                 std::to_string(share[client]) + " is the share of its context";
                      });
    }
}

// ---- ends --------------------------------------------------------------------------------------

std::string ManyClients::describe(const PendingReply& pending_reply) const {
    const auto ms = [](TimePoint at) { return std::to_string(at.time_since_epoch() / 1ms); };
    std::string text =
        "a call of " + pending_reply.client + ", answered at " + ms(pending_reply.answered) + " ms";
    if (!pending_reply.is_complete) return text + ", is still open";
    return text + ", ended with " + pending_reply.status.to_string() +
           (pending_reply.status.ok() && !pending_reply.is_whole ? ", with a wrong reply" : "");
}

void ManyClients::send(const std::string& client, const std::string& server) {
    PendingReply& pending_reply = pending_replies_.emplace_back();
    pending_reply.client = client;
    ReplyRequest reply_request;
    reply_request.number = static_cast<std::uint32_t>(pending_replies_.size() - 1);
    reply_request.bytes = below(16) == 0 ? rendezvous_reply_bytes
                                         : 8 + static_cast<std::uint32_t>(below(reply_bytes_max));
    ++open_;
    channels_(client, server)
        .call(many_clients_method,
              {reinterpret_cast<const std::byte*>(&reply_request), sizeof reply_request},
              {.timeout = crowd_patience},
              [this, &pending_reply, reply_request](const Status& status, ByteView reply) {
                  --open_;
                  pending_reply.is_complete = true;
                  pending_reply.status = status;
                  const std::vector<std::byte> whole =
                      reply_of(reply_request.number, reply_request.bytes);
                  pending_reply.is_whole =
                      std::equal(reply.begin(), reply.end(), whole.begin(), whole.end());
              });
}

void ManyClients::call_during_end(const std::string& client, const std::string& server,
                                  std::function<void()> then) {
    CallDuringEnd& call_during_end = calls_during_end_.emplace_back();
    call_during_end.client = client;
    ReplyRequest reply_request;
    reply_request.number = static_cast<std::uint32_t>(calls_during_end_.size());
    ++open_;
    channels_(client, server)
        .call(many_clients_method,
              {reinterpret_cast<const std::byte*>(&reply_request), sizeof reply_request},
              {.timeout = crowd_patience},
              [this, &call_during_end, then = std::move(then)](const Status& status, ByteView) {
                  --open_;
                  call_during_end.status = status;
                  then();
              });
}

void ManyClients::keep_calling(const std::string& client, const std::string& server) {
    if (!keeps_calling_) return;
    call_during_end(client, server, [this, client, server] {
        simulation_.in(up_to(call_interval),
                       [this, client, server] { keep_calling(client, server); });
    });
}

void ManyClients::validate_calls_during_end() {
    for (const CallDuringEnd& call_during_end : calls_during_end_) {
        if (call_during_end.client == paused_client_) continue;
        const bool is_sure =
            call_during_end.status.effect() == Effect::none && !call_during_end.has_run;
        results_.hold(call_during_end.status.ok() || is_sure, Rule::shutdown_leaves_no_unknown,
                      [&] {
                          return "a call of " + call_during_end.client +
                                 (call_during_end.has_run ? ", which ran," : "") + " ended with " +
                                 call_during_end.status.to_string();
                      });
    }
}

void ManyClients::slow_down_some(const Names& clients) {
    for (const std::string& client : clients) {
        if (below(2) == 0 || client == paused_client_) continue;
        simulation_.in(up_to(drains_after), [this, client] { simulation_.pause(client); });
        simulation_.in(drains_after + up_to(reads_again_after),
                       [this, client] { simulation_.resume(client); });
    }
}

// While the server ends, or before: many calls are on the way, some of them in slots that no call
// has used, when the connection is dropped.
void ManyClients::cut_some(const Names& clients, const std::string& server) {
    for (const std::string& client : clients) {
        if (below(2) == 0 || client == paused_client_) continue;
        cut_.insert(client);
        sim::Link link;
        link.latency = up_to(late_link);
        simulation_.set_link(client, server, link);
        simulation_.set_link(server, client, link);
        const Duration at = up_to(drains_after + answers_within + late_link);
        simulation_.in(at, [this, client, server] {
            for (std::uint32_t i = 0; i < calls_before_cut; ++i) {
                call_during_end(client, server, [] {});
            }
        });
        simulation_.in(at + up_to(late_link), [this, client, server] {
            core::Peer* const peer =
                core::Context::find(rpc::ChannelImpl::of(channels_(client, server))->peer());
            if (!peer || peer->state != core::PeerState::up) return;
            node_of(*simulation_.runtime(client))
                .context.drop_connection(*peer, fail(Code::unavailable, "cut"));
        });
    }
}

void ManyClients::validate_end(const Names& clients, const std::string& server) {
    pending_replies_.clear();
    cut_.clear();
    paused_client_ = below(4) == 0 ? clients[below(clients.size())] : "";
    for (const std::string& client : clients) {
        for (std::uint32_t i = 0; i < pending_replies_each; ++i) send(client, server);
    }
    slow_down_some(clients);
    calls_during_end_.clear();
    keeps_calling_ = true;
    for (const std::string& client : clients) keep_calling(client, server);
    cut_some(clients, server);
    simulation_.run_for(drains_after);
    const TimePoint drains = simulation_.now();
    if (!paused_client_.empty()) simulation_.pause(paused_client_);
    simulation_.end(server);
    simulation_.run_until([&] { return !simulation_.is_up(server); }, crowd_patience);
    const Duration took = simulation_.now() - drains;
    const Duration most = paused_client_.empty() ? ends_within : ends_within + given_up_within;
    results_.hold(took < most, Rule::shutdown_is_prompt,
                  [&] { return server + " ended after " + std::to_string(took / 1ms) + " ms"; });
    simulation_.kill(server);
    simulation_.start(server);
    simulation_.set_links(sim::Link());
    if (!paused_client_.empty()) simulation_.resume(paused_client_);
    simulation_.run_for(drains_after);
    keeps_calling_ = false;
    results_.hold(simulation_.run_until([&] { return open_ == 0; }, crowd_patience),
                  Rule::shutdown_loses_no_reply,
                  [&] { return "calls to " + server + " have not ended"; });
    validate_calls_during_end();
    for (const PendingReply& pending_reply : pending_replies_) {
        if (pending_reply.answered > drains || pending_reply.client == paused_client_) continue;
        if (cut_.contains(pending_reply.client)) continue;
        results_.hold(pending_reply.status.ok() && pending_reply.is_whole,
                      Rule::shutdown_loses_no_reply, [&] { return describe(pending_reply); });
    }
}

// ---- short-lived clients -----------------------------------------------------------------------

std::shared_ptr<void> ManyClients::serve_short_lived_clients(Runtime& runtime) {
    struct ShortLivedService : Service {
        explicit ShortLivedService(ManyClients& of) : many_clients(of) {}
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(short_lived_method,
                          [this](Call call) { many_clients.hold_call(std::move(call)); });
        }
        ManyClients& many_clients;
    };
    const auto service = std::make_shared<ShortLivedService>(*this);
    results_.hold(runtime.serve(*service, "sim://" + short_lived_server).ok(),
                  Rule::all_servers_recover, [] { return short_lived_server + " does not serve"; });
    return service;
}

std::shared_ptr<void> ManyClients::short_lived_client(Runtime& runtime,
                                                      const std::string& client_name) {
    const auto channel =
        std::make_shared<Channel>(runtime.connect("sim://" + short_lived_server).value());
    const auto number = static_cast<std::uint32_t>(short_lived_clients_.size());
    ShortLivedClient& short_lived_client = short_lived_clients_.emplace_back();
    channel->call(short_lived_method, {reinterpret_cast<const std::byte*>(&number), sizeof number},
                  {.timeout = crowd_patience}, [](const Status&, ByteView) {});
    simulation_.in(up_to(stays_for),
                   [this, &short_lived_client, client_name, left = std::weak_ptr(channel)] {
                       short_lived_client.left = simulation_.now();
                       if (const auto leaving = left.lock()) leave(*leaving);
                       simulation_.end(client_name);
                       restart_client(client_name);
                   });
    return channel;
}

// Some drop their channel first, with more calls on the way than there is room for.
void ManyClients::leave(Channel& channel) {
    if (below(2) == 0) return;
    const std::vector<std::byte> body(visit_filler_bytes);
    for (int i = 0; i < 5; ++i) {
        channel.call(short_lived_method, body, {.timeout = crowd_patience},
                     [](const Status&, ByteView) {});
    }
    channel = Channel();
}

// As another process, once the last one is down.
void ManyClients::restart_client(const std::string& client_name) {
    simulation_.in(1ms, [this, client_name] {
        if (!keeps_starting_) return;
        if (simulation_.is_up(client_name)) return restart_client(client_name);
        simulation_.start(client_name);
    });
}

void ManyClients::hold_call(Call call) {
    std::uint32_t number = 0;
    if (call.request().size() != sizeof number) return;
    std::memcpy(&number, call.request().data(), sizeof number);
    ShortLivedClient& short_lived_client = short_lived_clients_[number];
    short_lived_client.began = simulation_.now();
    call.on_cancel([this, &short_lived_client] { short_lived_client.heard = simulation_.now(); });
    const auto held = std::make_shared<Call>(std::move(call));
    simulation_.in(up_to(visit_takes), [this, held, &short_lived_client] {
        if (!simulation_.is_up(short_lived_server)) return;
        short_lived_client.answered = simulation_.now();
        held->reply({});
    });
}

void ManyClients::validate_short_lived_clients() {
    keeps_starting_ = true;
    simulation_.add(short_lived_server,
                    [this](Runtime& runtime) { return serve_short_lived_clients(runtime); });
    for (std::uint32_t i = 0; i < visitors; ++i) {
        const std::string name = "visitor" + std::to_string(i);
        simulation_.add(
            name, [this, name](Runtime& runtime) { return short_lived_client(runtime, name); });
    }
    simulation_.run_for(visits_before_end);
    const TimePoint ends = simulation_.now();
    simulation_.end(short_lived_server);
    simulation_.run_until([&] { return !simulation_.is_up(short_lived_server); }, crowd_patience);
    const Duration took = simulation_.now() - ends;
    results_.hold(took < visited_ends_within, Rule::shutdown_is_prompt, [&] {
        return short_lived_server + " ended after " + std::to_string(took / 1ms) + " ms";
    });
    keeps_starting_ = false;
    simulation_.run_for(stays_for + visit_takes);
    for (const ShortLivedClient& short_lived_client : short_lived_clients_) {
        if (short_lived_client.began >= short_lived_client.left ||
            short_lived_client.answered <= short_lived_client.left + hears_within)
            continue;
        results_.hold(
            short_lived_client.heard <= short_lived_client.left + hears_within,
            Rule::cancel_arrives, [&] {
                const auto us = [](TimePoint at) {
                    return at == never ? "never" : std::to_string(at.time_since_epoch() / 1us);
                };
                return short_lived_server +
                       " was notified too late of the end of a process: began " +
                       us(short_lived_client.began) + ", left " + us(short_lived_client.left) +
                       ", notified " + us(short_lived_client.heard) + ", replied " +
                       us(short_lived_client.answered);
            });
    }
}

// ---- pages -------------------------------------------------------------------------------------

void ManyClients::expose_fresh_pages(const Names& clients, const Names& servers) {
    std::vector<Region> regions;
    for (const std::string& server : servers) {
        for (std::uint32_t i = 0; i < pages_each; ++i) {
            Runtime& owner = *simulation_.runtime(server);
            const Buffer page = owner.allocate(page_bytes).value();
            regions.push_back(owner.expose(page, {.access = Access::read}).value());
            const std::string& client = clients[below(clients.size())];
            const Buffer local = simulation_.runtime(client)->allocate(page_bytes).value();
            ++open_;
            channels_(client, server)
                .get(regions.back().ref(), 0, local, {.timeout = crowd_patience},
                     [this, local](const Status&) { --open_; });
        }
    }
    simulation_.run_until([this] { return open_ == 0; }, crowd_patience);
    for (Region& region : regions) region.close();
    simulation_.run_for(fences_within);
}

}  // namespace weft::scenarios
