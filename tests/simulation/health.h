// Since when hosts and the links between them had no fault, and which connections were used since.
#pragma once

#include <map>
#include <string>
#include <utility>

#include <weft/time.h>

namespace weft::scenarios {

// The effect of a fault.
enum class Harm : std::uint8_t {
    slows,   // Time.
    breaks,  // Connections, too.
};

// What waits for a reply, over a connection of the client's: its leg.
struct Waiting {
    const std::string& client;
    unsigned leg;
    const std::string& server;
    TimePoint submitted;
    bool was_connected;  // Then, as far as both ends knew.
};

class Health {
  public:
    // A fault of one host, of one direction between two, or of everything begins or ends. Faults of
    // one place may overlap; each that begins has to end.
    void begin(Harm harm, const std::string& host) { ++of(harm, host, "").active; }
    void begin(Harm harm, const std::string& from, const std::string& to) {
        ++of(harm, from, to).active;
    }
    void end(Harm harm, const std::string& host, TimePoint now) { of(harm, host, "").end(now); }
    void end(Harm harm, const std::string& from, const std::string& to, TimePoint now) {
        of(harm, from, to).end(now);
    }
    void begin_everywhere(Harm harm) { ++of(harm, "", "").active; }
    void end_everywhere(Harm harm, TimePoint now) { of(harm, "", "").end(now); }
    // Ends every fault.
    void end_all(TimePoint now);

    // When the last fault of the kind, or a worse one, that affects messages between these two
    // ended; `never`: one is active.
    TimePoint sound_since(Harm harm, const std::string& one, const std::string& other) const;

    // It gets its reply: both ends know the connection.
    void answered(const Waiting& call, TimePoint now);
    // No fault of the kind was between these two since the call began, and no connection then was
    // broken without its ends knowing.
    bool is_sound(Harm harm, const Waiting& call) const;
    // Whether a leg got a reply since the last break.
    bool is_connected(const std::string& from, unsigned leg, const std::string& to) const;
    // Whether the connection was there when the call began, or later.
    bool was_connected(const Waiting& call) const;

  private:
    // How long the effects of a fault, on messages or on the state of an end, may still appear.
    static constexpr Duration echo = 250ms;

    struct FaultSite {
        std::uint32_t active = 0;
        TimePoint ended = TimePoint::min();  // The last one.
        void end(TimePoint now) {
            if (active > 0) --active;
            ended = now;
        }
    };
    using Pair = std::pair<std::string, std::string>;  // Host and "": the host; both "": all.

    FaultSite& of(Harm harm, const std::string& from, const std::string& to) {
        return fault_sites_[static_cast<std::size_t>(harm)][{from, to}];
    }

    // The same, after the echo of the last fault.
    TimePoint quiet_since(Harm harm, const std::string& from, const std::string& to) const;

    std::map<Pair, FaultSite> fault_sites_[2];
    struct Use {
        // When the first call after the last break began that got a reply.
        TimePoint since = TimePoint::min();
        TimePoint last_reply = TimePoint::min();
    };
    const Use* use_of(const std::string& from, unsigned leg, const std::string& to) const;
    std::map<std::pair<Pair, unsigned>, Use> uses_;
};

}  // namespace weft::scenarios
