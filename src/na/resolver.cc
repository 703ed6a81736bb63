#include "na/resolver.h"

#include <netdb.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>

#include "base/fork.h"
#include "base/quiet_thread.h"

namespace weft::na {

// The families take turns, as the system ordered each (RFC 8305, 4): a host whose IPv6 leads
// nowhere costs one try.
static std::vector<SocketName> in_turn(const std::vector<SocketName>& names) {
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

static Resolver::Answer ask_system(const std::string& host) {
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
    return {in_turn(names), {}};
}

struct Resolver::State : std::enable_shared_from_this<State> {
    struct Entry {
        std::shared_ptr<Question> question;
        bool is_answered = false;  // As was found at
        TimePoint found_at{};      // this time.
    };
    struct Waiting {
        std::string host;
        std::shared_ptr<Question> question;
    };
    using Queue = std::deque<Waiting>;

    State(Answer (*with)(const std::string& host), Duration kept)
        : look_up(with), failure_kept(kept) {}

    bool is_of_use(Entry& entry, TimePoint now) const;
    void sweep(TimePoint now);
    std::shared_ptr<Question> start(const std::string& host, Origin origin);
    void move_to_program(const std::string& host);
    bool forget_abandoned(const Waiting& one);
    bool needs_thread() const;
    bool start_thread(std::string& why);
    bool take(Waiting& next, bool& is_peers);
    void loop();

    Answer (*const look_up)(const std::string& host);
    const Duration failure_kept;
    mutable std::mutex mutex;  // Guards what follows.
    std::map<std::string, Entry> entries;
    std::size_t sweep_at = 64;  // Entries.
    Queue of_program;
    Queue of_peers;
    unsigned threads = 0;
    unsigned asking = 0;            // Threads that ask the system,
    unsigned asking_for_peers = 0;  // for peers.
};

static void finish(Resolver::Question& question, Resolver::Answer answer) {
    question.answer = std::move(answer);
    question.done.store(true, std::memory_order_release);
    question.done.notify_all();
}

static std::shared_ptr<Resolver::Question> refused(std::string why) {
    auto question = std::make_shared<Resolver::Question>();
    finish(*question, {{}, std::move(why), Code::resource_exhausted});
    return question;
}

bool Resolver::State::is_of_use(Entry& entry, TimePoint now) const {
    if (!entry.question->done.load(std::memory_order_acquire)) return true;
    if (!entry.is_answered) {
        entry.is_answered = true;
        entry.found_at = now;
    }
    return entry.question->answer.names.empty() && now - entry.found_at < failure_kept;
}

void Resolver::State::sweep(TimePoint now) {
    for (auto at = entries.begin(); at != entries.end();) {
        at = is_of_use(at->second, now) ? std::next(at) : entries.erase(at);
    }
    sweep_at = std::max<std::size_t>(64, 2 * entries.size());
}

// The program wants to know it, too: it waits among its own.
void Resolver::State::move_to_program(const std::string& host) {
    const auto at = std::find_if(of_peers.begin(), of_peers.end(),
                                 [&](const Waiting& one) { return one.host == host; });
    if (at == of_peers.end()) return;
    of_program.push_back(std::move(*at));
    of_peers.erase(at);
    std::string why;
    if (needs_thread()) (void)start_thread(why);  // Else those that ask for peers take it.
}

// True for one that nothing but its queue and its entry refers to; it has no entry afterwards.
bool Resolver::State::forget_abandoned(const Waiting& one) {
    const auto entry = entries.find(one.host);
    const bool has_entry = entry != entries.end() && entry->second.question == one.question;
    if (one.question.use_count() > (has_entry ? 2 : 1)) return false;
    if (has_entry) entries.erase(entry);
    return true;
}

// There is more that may be asked now than threads that are about to take it.
bool Resolver::State::needs_thread() const {
    const std::size_t for_peers =
        std::min<std::size_t>(of_peers.size(), peer_threads_max - asking_for_peers);
    return threads < threads_max && of_program.size() + for_peers > threads - asking;
}

std::shared_ptr<Resolver::Question> Resolver::State::start(const std::string& host, Origin origin) {
    const bool is_peers = origin == Origin::peer;
    Queue& queue = is_peers ? of_peers : of_program;
    const std::size_t most = is_peers ? peer_waiting_max : waiting_max;
    if (queue.size() >= most) {
        std::erase_if(queue, [&](const Waiting& one) { return forget_abandoned(one); });
    }
    if (queue.size() >= most) {
        return refused(std::to_string(most) + " host names" + (is_peers ? " of peers" : "") +
                       " wait for the resolver already, which is its limit");
    }
    auto question = std::make_shared<Question>();
    queue.push_back({host, question});
    if (std::string why; needs_thread() && !start_thread(why) && threads == 0) {
        queue.pop_back();
        return refused(std::move(why));
    }
    return question;
}

bool Resolver::State::start_thread(std::string& why) {
    try {
        base::start_quiet_thread([self = shared_from_this()] { self->loop(); }).detach();
        ++threads;
        return true;
    } catch (const std::system_error& error) {
        why = std::string("no thread to ask the resolver with: ") + error.what() + " (" +
              base::thread_limits_text() + ")";
        return false;
    }
}

// The program's first. False: nothing may be asked now.
bool Resolver::State::take(Waiting& next, bool& is_peers) {
    while (true) {
        is_peers = of_program.empty();
        if (is_peers && (of_peers.empty() || asking_for_peers >= peer_threads_max)) return false;
        Queue& queue = is_peers ? of_peers : of_program;
        next = std::move(queue.front());
        queue.pop_front();
        if (!forget_abandoned(next)) return true;
    }
}

void Resolver::State::loop() {
    std::unique_lock lock(mutex);
    Waiting next;
    bool is_peers = false;
    while (take(next, is_peers)) {
        ++asking;
        asking_for_peers += is_peers;
        lock.unlock();
        finish(*next.question, look_up(next.host));
        next = {};
        lock.lock();
        --asking;
        asking_for_peers -= is_peers;
    }
    --threads;
}

Resolver::Resolver(Answer (*look_up)(const std::string& host), Duration failure_kept)
    : state_(std::make_shared<State>(look_up, failure_kept)) {}

// Threads of a parent that forked do not exist in the child.
Resolver& Resolver::system() {
    struct System : Resolver {
        System() : Resolver(&ask_system) {}
    };
    return base::per_process<System>();
}

std::shared_ptr<const Resolver::Question> Resolver::ask(const std::string& host, TimePoint now,
                                                        Origin origin) {
    const std::lock_guard lock(state_->mutex);
    if (state_->entries.size() >= state_->sweep_at) state_->sweep(now);
    const auto known = state_->entries.find(host);
    if (known != state_->entries.end() && state_->is_of_use(known->second, now)) {
        if (origin == Origin::program) state_->move_to_program(host);
        return known->second.question;
    }
    const std::shared_ptr<Question> question = state_->start(host, origin);
    // What only this process is short of says nothing about the host.
    if (!question->done.load(std::memory_order_acquire)) {
        state_->entries.insert_or_assign(host, State::Entry{question});
    }
    return question;
}

std::shared_ptr<const Resolver::Question> Resolver::ask_anew(const std::string& host) {
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
