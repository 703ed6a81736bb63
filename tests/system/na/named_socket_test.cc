#include "na/named_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "support/catch.h"

namespace weft::na_named_socket_test {
namespace {

using na::NamedSocket;

struct Name {
    const std::string path = "/tmp/weft-named-" + std::to_string(::getpid());
    const std::string lock = path + ".lock";
    Result<NamedSocket> listen() const {
        return NamedSocket::listen(path, lock, SOCK_STREAM, "unix://" + path);
    }
    bool is_there() const {
        return ::access(path.c_str(), F_OK) == 0 && ::access(lock.c_str(), F_OK) == 0;
    }
};

TEST_CASE("a named socket removes its files when it is destroyed") {
    const Name name;
    std::optional<NamedSocket> owner = name.listen().value();
    CHECK(name.is_there());
    CHECK(name.listen().status().code() == Code::already_exists);
    owner.reset();
    CHECK(::access(name.path.c_str(), F_OK) != 0);
    CHECK(::access(name.lock.c_str(), F_OK) != 0);
}

TEST_CASE("a named socket leaves the files of its successor when its own were deleted") {
    const Name name;
    std::optional<NamedSocket> owner = name.listen().value();
    REQUIRE(::unlink(name.path.c_str()) == 0);
    REQUIRE(::unlink(name.lock.c_str()) == 0);
    std::optional<NamedSocket> successor = name.listen().value();
    owner.reset();
    CHECK(name.is_there());
    CHECK(name.listen().status().code() == Code::already_exists);
    successor.reset();
    CHECK(name.listen().ok());
}

}  // namespace
}  // namespace weft::na_named_socket_test
