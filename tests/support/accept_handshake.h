// A tcp listener outside of any endpoint that reads as an endpoint does.
#pragma once

#include "na/tcp/handshake.h"
#include "support/accept.h"
#include "support/na_rig.h"

namespace weft::test {

// The next connection, once its whole greeting has arrived.
inline base::UniqueFd accept_handshake(NaRig& rig, int listener,
                                       na::tcp::HandshakeReader& greeting) {
    base::UniqueFd socket;
    REQUIRE(rig.pump_until([&] {
        if (!socket) socket = accept_one(listener);
        return socket && greeting.read(socket.get()) == na::tcp::HandshakeReader::Read::whole;
    }));
    return socket;
}

}  // namespace weft::test
