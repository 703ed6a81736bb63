#include "na/resolution.h"

namespace weft::na {

std::unique_ptr<Resolution> Resolution::start(const std::string& host, std::uint16_t port,
                                              TimePoint now, Resolver& resolver) {
    return std::make_unique<Resolution>(host, port, resolver.ask(host, now));
}

void Resolution::wait() const { question_->done.wait(false, std::memory_order_acquire); }
bool Resolution::done() const { return question_->done.load(std::memory_order_acquire); }

Result<SocketName> Resolution::answer() const {
    const Resolver::Answer& answer = question_->answer;
    if (!answer.name.empty()) return answer.name.with_port(port_);
    return fail(Code::unavailable, "can't resolve '" + host_ + "': " + answer.error);
}

std::optional<SocketName> numeric_name(const Address& address) {
    const bool loopback = address.host.empty() || address.host == "localhost";
    return SocketName::from_numeric(loopback ? "127.0.0.1" : address.host, address.port);
}

Result<SocketName> wait_for_name(const Address& address) {
    if (const auto name = numeric_name(address)) return *name;
    const Resolution resolution(address.host, address.port,
                                Resolver::system().ask_anew(address.host));
    resolution.wait();
    return resolution.answer();
}

}  // namespace weft::na
