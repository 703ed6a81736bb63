#include "client_quota.h"

#include <utility>

namespace storage {

using weft::ClientId;
using weft::Code;
using weft::Result;
using weft::Status;

struct ClientQuota::Usage {
    const std::string of;
    const std::size_t all_max;
    const std::size_t client_max;
    std::mutex mutex;
    std::size_t all = 0;
    std::map<ClientId, std::size_t> clients;
};

struct ClientQuota::Reservation {
    Reservation(std::shared_ptr<Usage> in, ClientId of, std::size_t taken)
        : usage(std::move(in)), client(of), count(taken) {}
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;
    ~Reservation() {
        const std::lock_guard lock(usage->mutex);
        usage->all -= count;
        const auto own = usage->clients.find(client);
        own->second -= count;
        if (own->second == 0) usage->clients.erase(own);
    }

    const std::shared_ptr<Usage> usage;
    const ClientId client;
    const std::size_t count;
};

static Status none_left(const std::string& holder, std::size_t most, const std::string& of) {
    return weft::rejected(Code::resource_exhausted,
                          holder + " at most " + std::to_string(most) + " " + of +
                              ", and they are taken; end one of them, or try again later");
}

ClientQuota::ClientQuota(std::string of, std::size_t all_max, std::size_t client_max)
    : usage_(new Usage{std::move(of), all_max, client_max, {}, {}, {}}) {}

Result<std::shared_ptr<void>> ClientQuota::take(ClientId client, std::size_t count) {
    const std::lock_guard lock(usage_->mutex);
    const auto own = usage_->clients.find(client);
    const std::size_t held = own == usage_->clients.end() ? 0 : own->second;
    if (held + count > usage_->client_max) {
        return none_left("one client holds", usage_->client_max, usage_->of);
    }
    if (usage_->all + count > usage_->all_max) {
        return none_left("the server leases", usage_->all_max, usage_->of);
    }
    usage_->all += count;
    usage_->clients[client] = held + count;
    return std::shared_ptr<void>(std::make_shared<Reservation>(usage_, client, count));
}

}  // namespace storage
