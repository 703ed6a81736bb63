// The service, and a call of it: used by the server, the client and the test.
#pragma once

#include <string>

#include <weft/runtime.h>

#include "greeter.weft.h"

class Greeter final : public greeter::GreeterService {
  public:
    // A method is a coroutine: it may co_await calls, transfers and weft::sleep_for().
    weft::Task<weft::Status> Greet(weft::Call&, const greeter::Name& in,
                                   greeter::Greeting& out) override {
        if (in.name().empty()) {
            co_return weft::rejected(weft::Code::invalid_argument, "Greet: the name is empty");
        }
        out.set_text("hello " + in.name());
        co_return weft::Status();
    }
};

inline weft::Task<weft::Result<std::string>> greet(weft::Channel channel, std::string name) {
    greeter::Name request;
    request.set_name(name);
    weft::Result<greeter::Greeting> reply = co_await greeter::GreeterClient(channel).Greet(request);
    if (!reply) co_return reply.status();
    co_return reply->text();
}
