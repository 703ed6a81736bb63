// A listener over tcp that is no endpoint, and reads as one.
#pragma once

#include "na/tcp/greeting.h"
#include "support/accept.h"
#include "support/na_rig.h"

namespace weft::test {

// The next connection, once the whole of its greeting has come.
inline base::UniqueFd accept_greeting(NaRig& rig, int listener, na::tcp::Greeting& greeting) {
    base::UniqueFd socket;
    REQUIRE(rig.pump_until([&] {
        if (!socket) socket = accept_one(listener);
        return socket && greeting.read(socket.get()) == na::tcp::Greeting::Read::whole;
    }));
    return socket;
}

}  // namespace weft::test
