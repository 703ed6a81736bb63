#include "settings.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <tuple>

#include "bounds.h"
#include "name.h"

namespace storage {

using weft::Code;
using weft::Result;
using weft::Status;

WallTime wall_time() {
    return std::chrono::duration_cast<WallTime>(
        std::chrono::system_clock::now().time_since_epoch());
}

bool is_later(const SettingVersion& a, const SettingVersion& b) {
    return std::tuple(a.number(), a.writer()) > std::tuple(b.number(), b.writer());
}

std::string to_string(const SettingVersion& version) {
    char text[48];
    std::snprintf(text, sizeof text, "%llu.%016llx",
                  static_cast<unsigned long long>(version.number()),
                  static_cast<unsigned long long>(version.writer()));
    return text;
}

std::uint64_t Settings::next(WallTime now) {
    last_ = std::max(last_ + 1, number_of(now));
    return last_;
}

static Status validate_key(const std::string& key) {
    if (!key.empty() && key.size() <= setting_key_bytes_max) return {};
    return weft::rejected(
        Code::invalid_argument,
        "a setting's key has 1 to " + std::to_string(setting_key_bytes_max) + " bytes");
}

static Status not_later(const Setting& setting, const std::string& than) {
    return weft::rejected(Code::failed_precondition, "version " + to_string(setting.version()) +
                                                         " of setting " + quote(setting.key()) +
                                                         " is not later than " + than);
}

Status Settings::set(const Setting& setting, WallTime now) {
    if (Status status = validate_key(setting.key()); !status.ok()) return status;
    if (setting.value().size() > setting_value_bytes_max) {
        return weft::rejected(
            Code::invalid_argument,
            "a setting's value has at most " + std::to_string(setting_value_bytes_max) + " bytes");
    }
    const std::uint64_t number = setting.version().number();
    if (number == 0) {
        return weft::rejected(Code::invalid_argument,
                              "a setting needs a version: call NextVersion for its number");
    }
    if (number > number_of(now + ahead_max)) {
        return weft::rejected(Code::invalid_argument,
                              "version " + to_string(setting.version()) + " of setting " +
                                  quote(setting.key()) + " lies " +
                                  std::to_string(ahead_max / std::chrono::hours(24)) +
                                  " days ahead of this server's clock; set the clocks");
    }
    const auto held = settings_.find(setting.key());
    if (held == settings_.end()) {
        if (number <= started_)
            return not_later(setting,
                             "the start of this server, by its clock; where "
                             "that was ahead, set it and start it again");
        if (settings_.size() >= settings_max) {
            return weft::rejected(Code::resource_exhausted, "the server has " +
                                                                std::to_string(settings_max) +
                                                                " settings, as many as it keeps");
        }
    } else if (!is_later(setting.version(), held->second.version())) {
        const bool is_repeated = !is_later(held->second.version(), setting.version()) &&
                                 held->second.value() == setting.value();
        if (is_repeated) return {};
        return not_later(setting, to_string(held->second.version()) + ", which stays");
    }
    last_ = std::max(last_, number);
    settings_[setting.key()] = setting;
    return {};
}

Status Settings::get(const std::string& key, Setting& out) const {
    if (Status status = validate_key(key); !status.ok()) return status;
    const auto found = settings_.find(key);
    if (found == settings_.end()) {
        return weft::rejected(Code::not_found, "no setting has the key " + quote(key));
    }
    out = found->second;
    return {};
}

// ---- at the client -----------------------------------------------------------------------------

static std::uint64_t random_writer() {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
}

weft::Task<Result<SetResult>> set_everywhere(weft::Group group, std::string key, std::string value,
                                             weft::GroupCallOptions options) {
    StoreGroupClient members(std::move(group));
    const weft::GroupResult<NextVersionReply> numbers =
        co_await members.NextVersion({}, {.timeout = options.timeout,
                                          .abandon_rest = true,
                                          .include = options.include,
                                          .exclude = options.exclude,
                                          .topology = options.topology});
    if (numbers.size() == 0 && !numbers.status().ok()) co_return numbers.status();
    // Derived from the members alone: the clock of a client could run ahead of later clients'
    // clocks.
    std::uint64_t number = 0;
    const WallTime now = wall_time();
    const auto most = static_cast<std::uint64_t>((now + Settings::ahead_max).count());
    for (const auto& rank : numbers) {
        // A number that no member would accept is ignored.
        if (rank.status.ok() && rank.reply.number() <= most) {
            number = std::max(number, rank.reply.number());
        }
    }
    if (number == 0) number = static_cast<std::uint64_t>(now.count());
    Setting setting;
    setting.set_key(std::move(key));
    setting.set_value(std::move(value));
    setting.mutable_version()->set_number(number);
    setting.mutable_version()->set_writer(random_writer());
    const weft::GroupResult<SetConfigReply> set = co_await members.SetConfig(setting, options);
    if (set.size() == 0 && !set.status().ok()) co_return set.status();
    SetResult outcome{setting.version(), {}};
    for (const auto& rank : set) outcome.ranks.push_back({rank.rank, rank.status});
    co_return outcome;
}

}  // namespace storage
