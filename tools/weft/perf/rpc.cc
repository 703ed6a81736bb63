// The metric `rpc`: requests and replies of bytes through Channel and Call, the path of every call.
#include <poll.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/codec.h"
#include "perf/background.h"
#include "perf/metrics.h"
#include "perf/service.h"

namespace weft::tool {

namespace {

// Every weft server echoes the request of this method, so any server can be measured.
constexpr MethodId ping("weft.Node/Ping");

using Clients = std::vector<std::unique_ptr<PerfClient>>;

// Until one of them has something to do, or for `longest`.
void sleep_on(const Clients& clients, Duration longest) {
    std::vector<pollfd> fds;
    const TimePoint now = std::chrono::steady_clock::now();
    TimePoint until = now + longest;
    for (const auto& client : clients) {
        if (!client->runtime().arm()) return;
        until = std::min(until, client->runtime().next_deadline());
        fds.push_back({client->runtime().wait_fd(), POLLIN, 0});
    }
    if (until <= now) return;
    const auto left_ms = static_cast<int>((until - now) / 1ms) + 1;
    ::poll(fds.data(), fds.size(), left_ms);
}

MethodId method_of(const PerfOptions& options) {
    if (options.work_us > 0) return perf_work;
    return options.reply_bytes() == options.size ? ping : perf_reply;
}

class RpcOperation final : public Operation {
  public:
    // The slots are those of each client in turn.
    RpcOperation(const Clients& clients, Loop& loop, const PerfOptions& options)
        : clients_(clients),
          loop_(loop),
          method_(method_of(options)),
          body_(options.size, std::byte{0x5a}),
          reply_bytes_(options.reply_bytes()) {
        if (method_.hash == perf_reply.hash) {
            base::store(body_.data(), static_cast<std::uint32_t>(reply_bytes_));
        } else if (method_.hash == perf_work.hash) {
            base::store(body_.data(), static_cast<std::uint32_t>(options.work_us * 1e3));
        }
        for (const auto& client : clients) {
            channels_.insert(channels_.end(), options.inflight, &client->channel());
        }
    }

    std::uint32_t turn() override {
        std::uint32_t events = 0;
        for (const auto& client : clients_) events += client->turn();
        return events;
    }
    void turn_and_sleep(Duration longest) override {
        if (clients_.size() == 1) {
            clients_.front()->turn_and_sleep(longest);
        } else if (turn() == 0) {
            sleep_on(clients_, longest);
        }
    }

    void issue(std::uint32_t slot) override {
        channels_[slot]->call(method_, body_, {},
                              [this, slot](const Status& status, ByteView reply) {
                                  if (status.ok() && reply.size() == reply_bytes_) [[likely]] {
                                      loop_.succeeded(slot);
                                  } else {
                                      loop_.failed(slot, why_wrong(status, reply));
                                  }
                              });
    }

    // Makes one call of each client and checks every byte of its reply.
    Status check() {
        for (const auto& client : clients_) {
            if (Status status = check(*client); !status.ok()) return status;
        }
        return {};
    }

  private:
    Status check(PerfClient& client) {
        Result<std::string> reply = client.call(method_, body_);
        if (!reply) return std::move(reply).status();
        const bool echoed = method_.hash != perf_reply.hash;
        for (std::size_t i = 0; i < reply->size(); ++i) {
            const std::byte expected = echoed ? body_[i] : std::byte{0x5a};
            if (static_cast<std::byte>((*reply)[i]) != expected) {
                return fail(Code::data_loss, "the reply is wrong at byte " + std::to_string(i));
            }
        }
        return reply->size() == reply_bytes_ ? Status() : wrong_size(reply->size());
    }
    Status wrong_size(std::size_t bytes) const {
        return fail(Code::data_loss, "a reply of " + std::to_string(bytes) + " bytes instead of " +
                                         std::to_string(reply_bytes_));
    }
    Status why_wrong(const Status& status, ByteView reply) const {
        return status.ok() ? wrong_size(reply.size()) : status;
    }

    const Clients& clients_;
    Loop& loop_;
    std::vector<const Channel*> channels_;  // By slot.
    const MethodId method_;
    std::vector<std::byte> body_;
    const std::size_t reply_bytes_;
};

}  // namespace

Result<Measurement> measure_rpc(const PerfOptions& options, const std::string& uri) {
    if (options.reply_bytes() != options.size && options.size < 4) {
        return fail(Code::invalid_argument,
                    "the request carries --reply-size, so --size must be at least 4");
    }
    if (options.work_us > 0 && (options.size < 4 || options.reply_bytes() != options.size)) {
        return fail(Code::invalid_argument,
                    "the request carries --work, so --size must be at least 4, without "
                    "--reply-size");
    }
    Clients clients;
    for (std::uint32_t i = 0; i < options.clients; ++i) {
        Result<std::unique_ptr<PerfClient>> client = PerfClient::connect(options, uri);
        if (!client) return std::move(client).status();
        clients.push_back(*std::move(client));
    }
    PerfClient& first = *clients.front();
    LoopOptions all = loop_options(options);
    all.inflight *= options.clients;
    Loop loop(all);
    RpcOperation operation(clients, loop, options);
    if (Status status = operation.check(); !status.ok()) return status;
    const unsigned contexts = first.channel().contexts();  // Known since the first reply.
    if (options.beside.empty()) {
        Result<Measurement> metered = run_metered(loop, operation, first, options);
        if (metered) metered->contexts = contexts;
        return metered;
    }
    Background background(first, options.beside == "put");
    if (Status status = background.start(options.beside_size); !status.ok()) return status;
    Measurement measured = loop.run(operation);
    if (Status status = background.stop(); !status.ok()) return status;
    measured.beside_mib_per_s = background.mib_per_s();
    measured.contexts = contexts;
    return measured;
}

}  // namespace weft::tool
