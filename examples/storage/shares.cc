#include "shares.h"

#include <utility>

namespace storage {

using weft::ClientId;
using weft::Code;
using weft::Result;
using weft::Status;

struct Shares::Books {
    const std::string of;
    const std::size_t all_max;
    const std::size_t client_max;
    std::mutex mutex;
    std::size_t all = 0;
    std::map<ClientId, std::size_t> clients;
};

struct Shares::Share {
    Share(std::shared_ptr<Books> in, ClientId of, std::size_t taken)
        : books(std::move(in)), client(of), count(taken) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() {
        const std::lock_guard lock(books->mutex);
        books->all -= count;
        const auto own = books->clients.find(client);
        own->second -= count;
        if (own->second == 0) books->clients.erase(own);
    }

    const std::shared_ptr<Books> books;
    const ClientId client;
    const std::size_t count;
};

static Status none_left(const std::string& holder, std::size_t most, const std::string& of) {
    return weft::rejected(Code::resource_exhausted,
                          holder + " at most " + std::to_string(most) + " " + of +
                              ", and they are taken; end one of them, or try again later");
}

Shares::Shares(std::string of, std::size_t all_max, std::size_t client_max)
    : books_(new Books{std::move(of), all_max, client_max, {}, {}, {}}) {}

Result<std::shared_ptr<void>> Shares::take(ClientId client, std::size_t count) {
    const std::lock_guard lock(books_->mutex);
    const auto own = books_->clients.find(client);
    const std::size_t held = own == books_->clients.end() ? 0 : own->second;
    if (held + count > books_->client_max) {
        return none_left("one client holds", books_->client_max, books_->of);
    }
    if (books_->all + count > books_->all_max) {
        return none_left("the server lends", books_->all_max, books_->of);
    }
    books_->all += count;
    books_->clients[client] = held + count;
    return std::shared_ptr<void>(std::make_shared<Share>(books_, client, count));
}

}  // namespace storage
