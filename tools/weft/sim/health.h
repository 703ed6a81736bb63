// Since when nothing was wrong with hosts and the links between them, and which connections have
// been used since.
#pragma once

#include <map>
#include <string>
#include <utility>

#include <weft/time.h>

namespace weft::tool {

// What a fault may cost.
enum class Harm : std::uint8_t {
    slows,   // Time.
    breaks,  // Connections, too.
};

class Health {
  public:
    // A fault of one host, of one direction between two, or of everything begins or ends. Those of
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
    // Every fault is over.
    void end_all(TimePoint now);

    // When the last fault of the kind, or a worse one, that concerns what these two say to each
    // other ended; `never`: there is one.
    TimePoint sound_since(Harm harm, const std::string& one, const std::string& other) const;

    // A call of `from` that was begun at `submitted` was answered: both ends know the connection.
    void answered(const std::string& from, const std::string& to, TimePoint submitted);
    // Nothing of the kind happened between these two since `start`, nor was there a connection then
    // that had broken before without its ends knowing.
    bool is_sound(Harm harm, const std::string& from, const std::string& to, TimePoint start) const;

  private:
    // How long what a fault left on its way, or in one end's mind, may still come up.
    static constexpr Duration echo = 250ms;

    struct Place {
        std::uint32_t active = 0;
        TimePoint ended = TimePoint::min();  // The last one.
        void end(TimePoint now) {
            if (active > 0) --active;
            ended = now;
        }
    };
    using Pair = std::pair<std::string, std::string>;  // Host and "": the host; both "": all.

    Place& of(Harm harm, const std::string& from, const std::string& to) {
        return places_[static_cast<std::size_t>(harm)][{from, to}];
    }

    // And what the last fault left has come up.
    TimePoint settled(Harm harm, const std::string& from, const std::string& to) const;

    std::map<Pair, Place> places_[2];
    // Of calls that were answered, when the first after the last break was begun.
    std::map<Pair, TimePoint> used_;
};

}  // namespace weft::tool
