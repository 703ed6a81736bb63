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

    // A call of `from`, on its context `leg`, that began at `submitted` got its reply: both ends
    // know the connection. Each context has one of its own.
    void answered(const std::string& from, unsigned leg, const std::string& to,
                  TimePoint submitted);
    // No fault of the kind was between these two since `start`, and no connection then was broken
    // without its ends knowing.
    bool is_sound(Harm harm, const std::string& from, unsigned leg, const std::string& to,
                  TimePoint start) const;

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
    // When the first call after the last break began that got a reply.
    std::map<std::pair<Pair, unsigned>, TimePoint> used_;
};

}  // namespace weft::scenarios
