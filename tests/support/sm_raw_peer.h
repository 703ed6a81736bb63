// A peer that performs the handshake of sm by hand, well or badly, and then writes to the shared
// memory as no endpoint would.
#pragma once

#include <sys/socket.h>

#include "na/sm/handshake.h"
#include "na/sm/names.h"
#include "na/sm/region_table.h"
#include "na/sm/segment.h"
#include "support/sm_node.h"

namespace weft::test {

struct SmRawPeer {
    base::UniqueFd socket;
    base::UniqueFd rings;
    na::sm::Segment segment;
    na::sm::RegionTable table;
    na::Hello hello;

    explicit SmRawPeer(const std::string& name) {
        socket.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        Result<std::string> directory = na::sm::names_directory();
        REQUIRE(directory.ok());
        Result<sockaddr_un> address = na::sm::socket_address(*directory, name + ".sock");
        REQUIRE(address.ok());
        REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address),
                          sizeof *address) == 0);
        Result<na::sm::Segment> made = na::sm::Segment::make(&rings);
        REQUIRE(made.ok());
        segment = std::move(*made);
        Result<na::sm::RegionTable> table_made = na::sm::RegionTable::make(77);
        REQUIRE(table_made.ok());
        table = std::move(*table_made);
        hello.incarnation = {1, 2};
        hello.message_bytes_max = na::sm::message_bytes_max;
        hello.eager_bytes_max = na::sm::eager_bytes_max;
    }

    na::sm::FilesToSend files() const {
        na::sm::FilesToSend files;
        files.regions = table.file();
        files.rings = rings.get();
        return files;
    }
    void greet() { greet(files()); }
    void greet(const na::sm::FilesToSend& files) {
        REQUIRE(na::sm::send_hello(socket.get(), hello, files).ok());
    }
    void say(const void* bytes, std::size_t count) {
        REQUIRE(::send(socket.get(), bytes, count, MSG_NOSIGNAL) >= 0);
    }
    // Completes the handshake and waits until `server` has accepted it.
    na::PeerId join(SmNode& server) {
        greet();
        return await({&server}, server, na::EventKind::peer_up).event.peer;
    }
    // The refusal that the server sent; turns the server until it arrives.
    Status refusal(SmNode& server) {
        Status status;
        turn_until({&server}, [&] {
            Result<std::optional<na::sm::HelloPacket>> answer = na::sm::receive_hello(socket.get());
            if (answer) REQUIRE(!*answer);
            status = std::move(answer).status();
            return !status.ok();
        });
        return status;
    }

    na::sm::RingWriter writer() const { return segment.writer(na::sm::Side::connector); }
    na::sm::RingWords& writer_words() const { return writer().words(); }
    na::sm::RingWords& reader_words() const {
        return segment.reader(na::sm::Side::connector).words();
    }
};

}  // namespace weft::test
