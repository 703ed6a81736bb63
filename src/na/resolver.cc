#include "na/resolver.h"

#include <netdb.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>

#include "base/assert.h"
#include "base/fork.h"
#include "base/internal_thread.h"

namespace weft::na {

// The families alternate, each in the system's order (RFC 8305, 4): a host with broken IPv6 costs
// one attempt.
static std::vector<SocketName> interleaved(const std::vector<SocketName>& names) {
    WEFT_ASSERT(!names.empty());
    const int first = names.front().family();
    std::vector<SocketName> of_first, of_other, all;
    for (const SocketName& name : names) {
        (name.family() == first ? of_first : of_other).push_back(name);
    }
    for (std::size_t i = 0; i < names.size() && all.size() < Resolver::names_max; ++i) {
        if (i < of_first.size()) all.push_back(of_first[i]);
        if (i < of_other.size()) all.push_back(of_other[i]);
    }
    return all;
}

static Resolver::Answer query_system(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); code != 0) {
        const std::size_t percent = host.find('%');
        if (percent == host.npos) return {{}, ::gai_strerror(code)};
        return {{}, "this host has no interface '" + host.substr(percent + 1) + "'"};
    }
    std::vector<SocketName> names;
    for (const addrinfo* at = found; at; at = at->ai_next) {
        const auto known = SocketName::from_kernel(at->ai_addr, at->ai_addrlen);
        if (known) names.push_back(*known);
    }
    ::freeaddrinfo(found);
    if (names.empty()) return {{}, "no IPv4 or IPv6 address"};
    return {interleaved(names), {}};
}

struct Resolver::State : std::enable_shared_from_this<State> {
    struct Entry {
        std::shared_ptr<Query> query;
        bool is_answered = false;  // Completion was noticed,
        TimePoint found_at{};      // at this time.
    };
    struct Waiting {
        std::string host;
        std::shared_ptr<Query> query;
    };
    using Queue = std::deque<Waiting>;

    State(Answer (*with)(const std::string& host), Duration kept)
        : look_up(with), failure_ttl(kept) {}

    bool is_pending_or_cached(Entry& entry, TimePoint now) const;
    void sweep(TimePoint now);
    std::shared_ptr<Query> start(const std::string& host, Origin origin);
    void move_to_program(const std::string& host);
    bool drop_abandoned(const Waiting& one);
    bool needs_thread() const;
    bool start_thread(std::string& why);
    bool take(Waiting& next, bool& is_of_peer);
    void loop();

    Answer (*const look_up)(const std::string& host);
    const Duration failure_ttl;
    mutable std::mutex mutex;  // Guards the members below.
    std::map<std::string, Entry> entries;
    std::size_t sweep_at = 64;  // Number of entries.
    Queue of_program;
    Queue of_peers;
    unsigned threads = 0;
    unsigned querying = 0;            // Threads inside look_up(),
    unsigned querying_for_peers = 0;  // of these for peers.
};

static void finish(Resolver::Query& query, Resolver::Answer answer) {
    WEFT_ASSERT(!query.done.load(std::memory_order_relaxed));
    query.answer = std::move(answer);
    query.done.store(true, std::memory_order_release);
    query.done.notify_all();
}

static std::shared_ptr<Resolver::Query> refused(std::string why) {
    auto query = std::make_shared<Resolver::Query>();
    finish(*query, {{}, std::move(why), Code::resource_exhausted});
    return query;
}

bool Resolver::State::is_pending_or_cached(Entry& entry, TimePoint now) const {
    if (!entry.query->done.load(std::memory_order_acquire)) return true;
    if (!entry.is_answered) {
        entry.is_answered = true;
        entry.found_at = now;
    }
    return entry.query->answer.names.empty() && now - entry.found_at < failure_ttl;
}

void Resolver::State::sweep(TimePoint now) {
    for (auto at = entries.begin(); at != entries.end();) {
        at = is_pending_or_cached(at->second, now) ? std::next(at) : entries.erase(at);
    }
    sweep_at = std::max<std::size_t>(64, 2 * entries.size());
}

// The program resolves this name, too: the query moves to the program's queue.
void Resolver::State::move_to_program(const std::string& host) {
    const auto at = std::find_if(of_peers.begin(), of_peers.end(),
                                 [&](const Waiting& one) { return one.host == host; });
    if (at == of_peers.end()) return;
    of_program.push_back(std::move(*at));
    of_peers.erase(at);
    std::string why;
    if (needs_thread()) (void)start_thread(why);  // Else a thread that serves peers takes it.
}

// True if only its queue and its entry refer to the query; the entry is erased then.
bool Resolver::State::drop_abandoned(const Waiting& one) {
    const auto entry = entries.find(one.host);
    const bool has_entry = entry != entries.end() && entry->second.query == one.query;
    if (one.query.use_count() > (has_entry ? 2 : 1)) return false;
    if (has_entry) entries.erase(entry);
    return true;
}

// Whether more queries may run now than threads are free to take them.
bool Resolver::State::needs_thread() const {
    const std::size_t for_peers =
        std::min<std::size_t>(of_peers.size(), peer_threads_max - querying_for_peers);
    return threads < threads_max && of_program.size() + for_peers > threads - querying;
}

std::shared_ptr<Resolver::Query> Resolver::State::start(const std::string& host, Origin origin) {
    const bool is_of_peer = origin == Origin::peer;
    Queue& queue = is_of_peer ? of_peers : of_program;
    const std::size_t most = is_of_peer ? peer_waiting_max : waiting_max;
    if (queue.size() >= most) {
        std::erase_if(queue, [&](const Waiting& one) { return drop_abandoned(one); });
    }
    if (queue.size() >= most) {
        return refused(std::to_string(most) + " host names" + (is_of_peer ? " of peers" : "") +
                       " wait for the resolver already, which is its limit");
    }
    auto query = std::make_shared<Query>();
    queue.push_back({host, query});
    if (std::string why; needs_thread() && !start_thread(why) && threads == 0) {
        queue.pop_back();
        return refused(std::move(why));
    }
    return query;
}

bool Resolver::State::start_thread(std::string& why) {
    try {
        base::start_internal_thread([self = shared_from_this()] { self->loop(); }).detach();
        ++threads;
        return true;
    } catch (const std::system_error& error) {
        why = std::string("no thread to ask the resolver with: ") + error.what() + " (" +
              base::thread_limits_text() + ")";
        return false;
    }
}

// Takes the next query, the program's first. False: no query may run now.
bool Resolver::State::take(Waiting& next, bool& is_of_peer) {
    while (true) {
        is_of_peer = of_program.empty();
        if (is_of_peer && (of_peers.empty() || querying_for_peers >= peer_threads_max))
            return false;
        Queue& queue = is_of_peer ? of_peers : of_program;
        next = std::move(queue.front());
        queue.pop_front();
        if (!drop_abandoned(next)) return true;
    }
}

void Resolver::State::loop() {
    std::unique_lock lock(mutex);
    Waiting next;
    bool is_of_peer = false;
    while (take(next, is_of_peer)) {
        ++querying;
        querying_for_peers += is_of_peer;
        lock.unlock();
        finish(*next.query, look_up(next.host));
        next = {};
        lock.lock();
        --querying;
        querying_for_peers -= is_of_peer;
    }
    --threads;
}

Resolver::Resolver(Answer (*look_up)(const std::string& host), Duration failure_ttl)
    : state_(std::make_shared<State>(look_up, failure_ttl)) {}

// One per process: the threads of a parent do not exist in a forked child.
Resolver& Resolver::system() {
    struct System : Resolver {
        System() : Resolver(&query_system) {}
    };
    return base::per_process<System>();
}

std::shared_ptr<const Resolver::Query> Resolver::resolve(const std::string& host, TimePoint now,
                                                         Origin origin) {
    const std::lock_guard lock(state_->mutex);
    if (state_->entries.size() >= state_->sweep_at) state_->sweep(now);
    const auto known = state_->entries.find(host);
    if (known != state_->entries.end() && state_->is_pending_or_cached(known->second, now)) {
        if (origin == Origin::program) state_->move_to_program(host);
        return known->second.query;
    }
    const std::shared_ptr<Query> query = state_->start(host, origin);
    // A query that this process refused is not remembered: the host did not fail.
    if (!query->done.load(std::memory_order_acquire)) {
        state_->entries.insert_or_assign(host, State::Entry{query});
    }
    return query;
}

std::shared_ptr<const Resolver::Query> Resolver::resolve_again(const std::string& host) {
    const std::lock_guard lock(state_->mutex);
    return state_->start(host, Origin::program);
}

std::size_t Resolver::size(TimePoint now) {
    const std::lock_guard lock(state_->mutex);
    state_->sweep(now);
    return state_->entries.size();
}

unsigned Resolver::threads() const {
    const std::lock_guard lock(state_->mutex);
    return state_->threads;
}

}  // namespace weft::na
