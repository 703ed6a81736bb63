#include "sim/crowd.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "api/node.h"
#include "rpc/channel_impl.h"

namespace weft::tool {

namespace {

constexpr MethodId crowd_method("sim.Rpc/Crowd");
constexpr MethodId visit_method("sim.Rpc/Visit");
constexpr std::size_t request_bytes = 56 * 1024;  // In one message.
constexpr std::uint32_t asked_at_once = 4;
// A turn takes so many microseconds: meanwhile every client sends again.
constexpr unsigned busy_slowness = 100;
constexpr Duration busy_time = 4ms;
constexpr Duration crowd_patience = 20s;  // Far more than anything here takes.

constexpr std::uint32_t errands_each = 8;
constexpr std::uint32_t reply_bytes_max = 60 * 1024;
constexpr std::uint32_t reply_bytes_lent = 100'000;
constexpr Duration answers_within = 15ms;
constexpr Duration drains_after = 10ms;
constexpr Duration reads_again_after = 300ms;

constexpr Duration knocks_every = 2ms;
constexpr std::uint32_t knocks_before_cut = 12;
constexpr Duration late_link = 5ms;
// The slowest client reads again, and what it has to read arrives.
constexpr Duration ends_within = answers_within + reads_again_after + drains_after + 1s;
// A client that stands still is given up. Below drain_timeout.
constexpr Duration given_up_within = 3s;

const std::string visited = "visited";
constexpr std::uint32_t visitors = 4;
constexpr std::size_t visit_filler_bytes = 60'000;  // Of a call that is for nothing else.
constexpr Duration stays_for = 20ms;
constexpr Duration visit_takes = 400ms;  // In its handler, at most.
constexpr Duration visits_before_end = 60ms;
constexpr Duration hears_within = 200ms;  // Of one that is lost it hears after 3 s.
constexpr Duration visited_ends_within = visit_takes + 200ms;

constexpr std::uint32_t pages_each = 2;
constexpr std::size_t page_bytes = 128 * 1024;
constexpr Duration fences_within = 1s;

// What an errand asks for.
struct Wish {
    std::uint32_t number = 0;
    std::uint32_t bytes = 0;  // 0: an answer at once.
};

std::vector<std::byte> reply_of(std::uint32_t number, std::uint32_t bytes) {
    std::vector<std::byte> reply(bytes);
    for (std::size_t at = 0; at + sizeof number <= bytes; at += sizeof number) {
        std::memcpy(reply.data() + at, &number, sizeof number);
    }
    return reply;
}

}  // namespace

void Crowd::add_method(MethodRegistrar& registrar, const std::string& server) {
    registrar.add(crowd_method, [this, server](Call call) { answer(std::move(call), server); });
}

void Crowd::answer(Call call, const std::string& server) {
    Wish wish;
    if (call.request().size() < sizeof wish) return;
    std::memcpy(&wish, call.request().data(), sizeof wish);
    if (wish.bytes == 0) {
        if (wish.number != 0) knocks_[wish.number - 1].has_run = true;
        return call.reply({});
    }
    const std::uint32_t life = simulation_.lives(server);
    const auto held = std::make_shared<Call>(std::move(call));
    simulation_.in(up_to(answers_within), [this, server, life, held, wish] {
        if (!simulation_.is_up(server) || simulation_.lives(server) != life) return;
        errands_[wish.number].answered = simulation_.now();
        held->reply(reply_of(wish.number, wish.bytes));
    });
}

// ---- shares ------------------------------------------------------------------------------------

void Crowd::ask_on(const std::string& client, const std::string& server, TimePoint end) {
    const std::vector<std::byte> body(request_bytes);
    ++open_;
    channels_(client, server)
        .call(crowd_method, body, {.timeout = crowd_patience},
              [this, client, server, end](const Status& status, ByteView) {
                  --open_;
                  if (!status.ok() || simulation_.now() >= end) return;
                  ++served_[client];
                  ask_on(client, server, end);
              });
}

void Crowd::judge_shares(const Names& clients, const std::string& server) {
    served_.clear();
    simulation_.slow_down(server, busy_slowness);
    const TimePoint end = simulation_.now() + busy_time;
    for (const std::string& client : clients) {
        for (std::uint32_t i = 0; i < asked_at_once; ++i) ask_on(client, server, end);
    }
    simulation_.run_until([this] { return open_ == 0; }, crowd_patience);
    simulation_.slow_down(server, 1);
    std::uint64_t all = 0;
    for (const auto& [client, served] : served_) all += served;
    for (const std::string& client : clients) {
        const std::uint64_t own = served_[client];
        verdict_.hold(2 * own * clients.size() >= all, Rule::shares_are_fair, [&] {
            std::string text = server;
            text.append(" served ").append(client).append(" ").append(std::to_string(own));
            text.append(" times, of ").append(std::to_string(all));
            text.append(" for ").append(std::to_string(clients.size()));
            return text;
        });
    }
}

// ---- ends --------------------------------------------------------------------------------------

std::string Crowd::describe(const Errand& errand) const {
    const auto ms = [](TimePoint at) { return std::to_string(at.time_since_epoch() / 1ms); };
    std::string text =
        "a call of " + errand.client + ", answered at " + ms(errand.answered) + " ms";
    if (!errand.is_complete) return text + ", is still open";
    return text + ", ended with " + errand.status.to_string() +
           (errand.status.ok() && !errand.is_whole ? ", and another reply" : "");
}

void Crowd::send(const std::string& client, const std::string& server) {
    Errand& errand = errands_.emplace_back();
    errand.client = client;
    Wish wish;
    wish.number = static_cast<std::uint32_t>(errands_.size() - 1);
    wish.bytes =
        below(16) == 0 ? reply_bytes_lent : 8 + static_cast<std::uint32_t>(below(reply_bytes_max));
    ++open_;
    channels_(client, server)
        .call(crowd_method, {reinterpret_cast<const std::byte*>(&wish), sizeof wish},
              {.timeout = crowd_patience},
              [this, &errand, wish](const Status& status, ByteView reply) {
                  --open_;
                  errand.is_complete = true;
                  errand.status = status;
                  const std::vector<std::byte> whole = reply_of(wish.number, wish.bytes);
                  errand.is_whole =
                      std::equal(reply.begin(), reply.end(), whole.begin(), whole.end());
              });
}

void Crowd::knock(const std::string& client, const std::string& server,
                  std::function<void()> then) {
    Knock& knock = knocks_.emplace_back();
    knock.client = client;
    Wish wish;
    wish.number = static_cast<std::uint32_t>(knocks_.size());
    ++open_;
    channels_(client, server)
        .call(crowd_method, {reinterpret_cast<const std::byte*>(&wish), sizeof wish},
              {.timeout = crowd_patience},
              [this, &knock, then = std::move(then)](const Status& status, ByteView) {
                  --open_;
                  knock.status = status;
                  then();
              });
}

void Crowd::go_on_knocking(const std::string& client, const std::string& server) {
    if (!knocking_) return;
    knock(client, server, [this, client, server] {
        simulation_.in(up_to(knocks_every),
                       [this, client, server] { go_on_knocking(client, server); });
    });
}

void Crowd::judge_knocks() {
    for (const Knock& knock : knocks_) {
        if (knock.client == standing_) continue;
        const bool is_sure = knock.status.effect() == Effect::none && !knock.has_run;
        verdict_.hold(knock.status.ok() || is_sure, Rule::ends_leave_no_doubt, [&] {
            return "a call of " + knock.client + (knock.has_run ? ", which ran," : "") +
                   " ended with " + knock.status.to_string();
        });
    }
}

void Crowd::slow_down_some(const Names& clients) {
    for (const std::string& client : clients) {
        if (below(2) == 0 || client == standing_) continue;
        simulation_.in(up_to(drains_after), [this, client] { simulation_.pause(client); });
        simulation_.in(drains_after + up_to(reads_again_after),
                       [this, client] { simulation_.resume(client); });
    }
}

// While the server ends, or before: much crosses on the way, some of it in slots that no call has
// used, and then the connection is gone.
void Crowd::cut_some(const Names& clients, const std::string& server) {
    for (const std::string& client : clients) {
        if (below(2) == 0 || client == standing_) continue;
        cut_.insert(client);
        sim::Link link;
        link.latency = up_to(late_link);
        simulation_.set_link(client, server, link);
        simulation_.set_link(server, client, link);
        const Duration at = up_to(drains_after + answers_within + late_link);
        simulation_.in(at, [this, client, server] {
            for (std::uint32_t i = 0; i < knocks_before_cut; ++i) {
                knock(client, server, [] {});
            }
        });
        simulation_.in(at + up_to(late_link), [this, client, server] {
            core::Peer* const peer = core::Context::find(channels_(client, server).impl()->peer());
            if (!peer || peer->state != core::PeerState::up) return;
            simulation_.runtime(client)->node().context.drop_connection(
                *peer, fail(Code::unavailable, "cut"));
        });
    }
}

void Crowd::judge_end(const Names& clients, const std::string& server) {
    errands_.clear();
    cut_.clear();
    standing_ = below(4) == 0 ? clients[below(clients.size())] : "";
    for (const std::string& client : clients) {
        for (std::uint32_t i = 0; i < errands_each; ++i) send(client, server);
    }
    slow_down_some(clients);
    knocks_.clear();
    knocking_ = true;
    for (const std::string& client : clients) go_on_knocking(client, server);
    cut_some(clients, server);
    simulation_.run_for(drains_after);
    const TimePoint drains = simulation_.now();
    if (!standing_.empty()) simulation_.pause(standing_);
    simulation_.end(server);
    simulation_.run_until([&] { return !simulation_.is_up(server); }, crowd_patience);
    const Duration took = simulation_.now() - drains;
    const Duration most = standing_.empty() ? ends_within : ends_within + given_up_within;
    verdict_.hold(took < most, Rule::ends_are_prompt,
                  [&] { return server + " ended after " + std::to_string(took / 1ms) + " ms"; });
    simulation_.kill(server);
    simulation_.start(server);
    simulation_.set_links(sim::Link());
    if (!standing_.empty()) simulation_.resume(standing_);
    simulation_.run_for(drains_after);
    knocking_ = false;
    verdict_.hold(simulation_.run_until([&] { return open_ == 0; }, crowd_patience),
                  Rule::ends_lose_no_reply,
                  [&] { return "calls to " + server + " have not ended"; });
    judge_knocks();
    for (const Errand& errand : errands_) {
        if (errand.answered > drains || errand.client == standing_) continue;
        if (cut_.contains(errand.client)) continue;
        verdict_.hold(errand.status.ok() && errand.is_whole, Rule::ends_lose_no_reply,
                      [&] { return describe(errand); });
    }
}

// ---- visits ------------------------------------------------------------------------------------

std::shared_ptr<void> Crowd::serve_visits(Runtime& runtime) {
    struct Visited : Service {
        explicit Visited(Crowd& of) : crowd(of) {}
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(visit_method, [this](Call call) { crowd.hold_visit(std::move(call)); });
        }
        Crowd& crowd;
    };
    const auto service = std::make_shared<Visited>(*this);
    verdict_.hold(runtime.serve(*service, "sim://" + visited).ok(), Rule::all_answer_again,
                  [] { return visited + " does not serve"; });
    return service;
}

std::shared_ptr<void> Crowd::visit(Runtime& runtime, const std::string& visitor) {
    const auto channel = std::make_shared<Channel>(runtime.connect("sim://" + visited).value());
    const auto number = static_cast<std::uint32_t>(visits_.size());
    Visit& visit = visits_.emplace_back();
    channel->call(visit_method, {reinterpret_cast<const std::byte*>(&number), sizeof number},
                  {.timeout = crowd_patience}, [](const Status&, ByteView) {});
    simulation_.in(up_to(stays_for), [this, &visit, visitor, left = std::weak_ptr(channel)] {
        visit.left = simulation_.now();
        if (const auto leaving = left.lock()) leave(*leaving);
        simulation_.end(visitor);
        come_again(visitor);
    });
    return channel;
}

// Some drop their channel first, and have more on the way then than there is room for.
void Crowd::leave(Channel& channel) {
    if (below(2) == 0) return;
    const std::vector<std::byte> body(visit_filler_bytes);
    for (int i = 0; i < 5; ++i) {
        channel.call(visit_method, body, {.timeout = crowd_patience},
                     [](const Status&, ByteView) {});
    }
    channel = Channel();
}

// As another process, once the last one is down.
void Crowd::come_again(const std::string& visitor) {
    simulation_.in(1ms, [this, visitor] {
        if (!visiting_) return;
        if (simulation_.is_up(visitor)) return come_again(visitor);
        simulation_.start(visitor);
    });
}

void Crowd::hold_visit(Call call) {
    std::uint32_t number = 0;
    if (call.request().size() != sizeof number) return;
    std::memcpy(&number, call.request().data(), sizeof number);
    Visit& visit = visits_[number];
    visit.began = simulation_.now();
    call.on_cancel([this, &visit] { visit.heard = simulation_.now(); });
    const auto held = std::make_shared<Call>(std::move(call));
    simulation_.in(up_to(visit_takes), [this, held, &visit] {
        if (!simulation_.is_up(visited)) return;
        visit.answered = simulation_.now();
        held->reply({});
    });
}

void Crowd::judge_visits() {
    visiting_ = true;
    simulation_.add(visited, [this](Runtime& runtime) { return serve_visits(runtime); });
    for (std::uint32_t i = 0; i < visitors; ++i) {
        const std::string name = "visitor" + std::to_string(i);
        simulation_.add(name, [this, name](Runtime& runtime) { return visit(runtime, name); });
    }
    simulation_.run_for(visits_before_end);
    const TimePoint ends = simulation_.now();
    simulation_.end(visited);
    simulation_.run_until([&] { return !simulation_.is_up(visited); }, crowd_patience);
    const Duration took = simulation_.now() - ends;
    verdict_.hold(took < visited_ends_within, Rule::ends_are_prompt,
                  [&] { return visited + " ended after " + std::to_string(took / 1ms) + " ms"; });
    visiting_ = false;
    simulation_.run_for(stays_for + visit_takes);
    for (const Visit& visit : visits_) {
        if (visit.began >= visit.left || visit.answered <= visit.left + hears_within) continue;
        verdict_.hold(visit.heard <= visit.left + hears_within, Rule::cancel_arrives, [&] {
            const auto us = [](TimePoint at) {
                return at == never ? "never" : std::to_string(at.time_since_epoch() / 1us);
            };
            return visited + " heard too late of the end of a process: began " + us(visit.began) +
                   ", left " + us(visit.left) + ", heard " + us(visit.heard) + ", answered " +
                   us(visit.answered);
        });
    }
}

// ---- pages -------------------------------------------------------------------------------------

void Crowd::show_pages(const Names& clients, const Names& servers) {
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

}  // namespace weft::tool
