#include "na/tcp/endpoint.h"
#include "na/tcp/tcp.h"

namespace weft::na {
namespace {

class TcpProvider final : public Provider {
  public:
    explicit TcpProvider(std::string_view scheme) : scheme_(scheme) {}

    std::string_view scheme() const override { return scheme_; }

    Diagnosis probe() override {
        if (scheme_ == "unix") return {true, "sockets of the kernel under a path"};
        Result<base::UniqueFd> socket =
            tcp::listen_at(*SocketName::from_numeric("127.0.0.1", 0), "tcp://127.0.0.1:0");
        if (!socket) return {false, std::string(socket.status().text())};
        return {true, "sockets of the kernel"};
    }

    Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                           TimePoint now) override {
        return tcp::TcpEndpoint::open(scheme_, listen, std::move(parts), now);
    }

    Result<std::shared_ptr<Door>> open_door(const Address& listen, DoorParts parts,
                                            TimePoint) override {
        Result<std::shared_ptr<tcp::TcpDoor>> door =
            tcp::TcpDoor::open(scheme_, listen, std::move(parts));
        if (!door) return std::move(door).status();
        return std::shared_ptr<Door>(*std::move(door));
    }

  private:
    const std::string_view scheme_;
};

}  // namespace

std::unique_ptr<Provider> make_tcp_provider() { return std::make_unique<TcpProvider>("tcp"); }
std::unique_ptr<Provider> make_unix_provider() { return std::make_unique<TcpProvider>("unix"); }

}  // namespace weft::na
