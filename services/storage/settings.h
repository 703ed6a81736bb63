// Settings of one server, and a client's function to set one at every member of a group.
//
// A broadcast orders nothing: two broadcasts reach members in any order, and an interrupted one may
// arrive after one that was acknowledged later. So every setting has a version, and a member keeps
// the later version, whichever arrives first. All members then agree.
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

// Versions are ordered by number, then by writer. True when `a` is later than `b`.
bool is_later(const SettingVersion& a, const SettingVersion& b);
// "1764123456000000.0123456789abcdef"
std::string to_string(const SettingVersion& version);

// Numbers are at least the wall clock and more than any number given or received before, so that a
// set that begins after another set has its number gets a later number.
class Settings {
  public:
    // A number this far ahead of a server's clock is refused, so that no peer can exhaust the
    // numbers.
    static constexpr WallTime ahead_max = std::chrono::hours(12 * 24);

    // A restarted server refuses numbers from before its start.
    explicit Settings(WallTime now) : last_(number_of(now)), started_(last_) {}

    std::uint64_t next(WallTime now);
    // Errors: INVALID_ARGUMENT; RESOURCE_EXHAUSTED: too many settings; FAILED_PRECONDITION: the
    // server has a later version, which the text names, and keeps it.
    weft::Status set(const Setting& setting, WallTime now);
    // Errors: INVALID_ARGUMENT, NOT_FOUND.
    weft::Status get(const std::string& key, Setting& out) const;

  private:
    static std::uint64_t number_of(WallTime time) {
        return static_cast<std::uint64_t>(time.count());
    }

    std::map<std::string, Setting> settings_;
    std::uint64_t last_;  // The last number given or received.
    const std::uint64_t started_;
};

struct SetResult {
    struct Rank {
        std::uint32_t rank = 0;
        weft::Status status;
    };
    SettingVersion version;
    std::vector<Rank> ranks;
};

// Sets it at every member that takes part: requests a number later than all before from them, then
// broadcasts. Of two concurrent sets the later version stays everywhere; the ranks of the other set
// that already had it return FAILED_PRECONDITION. Errors: of the whole, when it did not begin.
weft::Task<weft::Result<SetResult>> set_everywhere(weft::Group group, std::string key,
                                                   std::string value,
                                                   weft::GroupCallOptions options);

}  // namespace storage
