// Settings of one server, and how a client sets one at every member of a group.
//
// A broadcast orders nothing: two of them reach members in any order, and one that was interrupted
// may still arrive after one that was acknowledged. So every setting has a version, and a member
// keeps the one with the later version, whichever comes first. All members then agree.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <weft/group.h>
#include <weft/task.h>

#include "storage.weft.h"

namespace storage {

// Microseconds since 1970.
using WallTime = std::chrono::microseconds;
WallTime wall_time();

// Versions are ordered by number, then by writer. True for one that is set later than the other.
bool is_later(const SettingVersion& a, const SettingVersion& b);
// "1764123456000000.0123456789abcdef"
std::string to_string(const SettingVersion& version);

// Numbers are at least the wall clock and more than any that was given or taken before, so that a
// set that begins after another one has its number gets a later one.
class Settings {
  public:
    // A number this far ahead of a server's clock is refused: no peer can use up the numbers.
    static constexpr WallTime ahead_max = std::chrono::hours(12 * 24);

    // A server that was restarted refuses what was numbered before.
    explicit Settings(WallTime now) : last_(number_of(now)), started_(last_) {}

    std::uint64_t next(WallTime now);
    // Errors: INVALID_ARGUMENT; RESOURCE_EXHAUSTED: too many settings; FAILED_PRECONDITION: a later
    // version is here, which the text names, and stays.
    weft::Status set(const Setting& setting, WallTime now);
    // Errors: INVALID_ARGUMENT, NOT_FOUND.
    weft::Status get(const std::string& key, Setting& out) const;

  private:
    static std::uint64_t number_of(WallTime time) {
        return static_cast<std::uint64_t>(time.count());
    }

    std::map<std::string, Setting> settings_;
    std::uint64_t last_;  // Number that was given or taken.
    const std::uint64_t started_;
};

struct SetOutcome {
    struct Rank {
        std::uint32_t rank = 0;
        weft::Status status;
    };
    SettingVersion version;
    std::vector<Rank> ranks;
};

// Sets it at every member that takes part: asks them for a number later than all before, then
// broadcasts. Of two at once the one with the later version stays everywhere; the other one's ranks
// that had it already have FAILED_PRECONDITION. Errors: of the whole, when it did not begin.
weft::Task<weft::Result<SetOutcome>> set_everywhere(weft::Group group, std::string key,
                                                    std::string value,
                                                    weft::GroupCallOptions options);

}  // namespace storage
