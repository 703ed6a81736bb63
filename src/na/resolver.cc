#include "na/resolver.h"

#include <netdb.h>

#include <system_error>

#include "base/quiet_thread.h"

namespace weft::na {

static Resolver::Answer ask_system(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); code != 0) {
        return {{}, ::gai_strerror(code)};
    }
    Resolver::Answer answer;
    // IPv4 first: an endpoint speaks one family, and our listeners default to 127.0.0.1.
    for (const int family : {AF_INET, AF_INET6}) {
        for (const addrinfo* at = found; at && answer.name.empty(); at = at->ai_next) {
            if (at->ai_family != family) continue;
            if (const auto known = SocketName::from_kernel(at->ai_addr, at->ai_addrlen)) {
                answer.name = *known;
            }
        }
    }
    ::freeaddrinfo(found);
    if (answer.name.empty()) answer.error = "no IPv4 or IPv6 address";
    return answer;
}

// Never destroyed: threads may still ask when the process ends.
Resolver& Resolver::system() {
    static auto* const resolver = new Resolver(&ask_system);
    return *resolver;
}

bool Resolver::is_of_use(Entry& entry, TimePoint now) const {
    if (!entry.question->done.load(std::memory_order_acquire)) return true;
    if (!entry.is_answered) {
        entry.is_answered = true;
        entry.found_at = now;
    }
    return entry.question->answer.name.empty() && now - entry.found_at < failure_kept_;
}

void Resolver::drop_useless(TimePoint now) {
    for (auto at = entries_.begin(); at != entries_.end();) {
        at = is_of_use(at->second, now) ? std::next(at) : entries_.erase(at);
    }
}

std::shared_ptr<const Resolver::Question> Resolver::ask(const std::string& host, TimePoint now) {
    const std::lock_guard lock(mutex_);
    drop_useless(now);
    if (const auto known = entries_.find(host); known != entries_.end()) {
        return known->second.question;
    }
    auto question = std::make_shared<Question>();
    // What only this process is short of says nothing about the host.
    if (start(host, question)) entries_.emplace(host, Entry{question});
    return question;
}

std::shared_ptr<const Resolver::Question> Resolver::ask_anew(const std::string& host) const {
    auto question = std::make_shared<Question>();
    start(host, question);
    return question;
}

std::size_t Resolver::size(TimePoint now) {
    const std::lock_guard lock(mutex_);
    drop_useless(now);
    return entries_.size();
}

bool Resolver::start(const std::string& host, const std::shared_ptr<Question>& question) const {
    const auto finish = [](Question& of, Answer answer) {
        of.answer = std::move(answer);
        of.done.store(true, std::memory_order_release);
        of.done.notify_all();
    };
    try {
        base::start_quiet_thread([host, question, look_up = look_up_, finish] {
            finish(*question, look_up(host));
        }).detach();
        return true;
    } catch (const std::system_error& error) {
        finish(*question, {{}, std::string("no thread to ask the resolver with: ") + error.what()});
        return false;
    }
}

}  // namespace weft::na
