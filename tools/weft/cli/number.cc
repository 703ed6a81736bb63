#include "cli/number.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <optional>

#include "base/duration_text.h"
#include "base/text.h"
#include "cli/text.h"

namespace weft::tool {

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
    const std::string range = std::to_string(least) + " to " + std::to_string(most);
    const auto validate = [=](std::string& text) -> std::string {
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool is_number = error == std::errc() && end == text.data() + text.size();
        if (!is_number || value < least || value > most) {
            return "'" + text + "' is not a whole number from " + range;
        }
        text = std::to_string(value);  // 010 is ten.
        return {};
    };
    return {validate, "INT in [" + std::to_string(least) + " - " + std::to_string(most) + "]"};
}

namespace {

// Digits, and a suffix of powers of 1024 or none: "64", "4k", "1MiB".
std::optional<std::uint64_t> bytes_in(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return std::nullopt;
    std::string unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (unit.ends_with('b')) unit.pop_back();
    if (unit.ends_with('i')) unit.pop_back();
    constexpr std::string_view powers[] = {"", "k", "m", "g", "t"};
    const auto* const power = std::find(std::begin(powers), std::end(powers), unit);
    if (power == std::end(powers)) return std::nullopt;
    const auto factor = std::uint64_t{1} << 10 * (power - std::begin(powers));
    if (__builtin_mul_overflow(value, factor, &value)) return std::nullopt;
    return value;
}

}  // namespace

CLI::Validator byte_count(std::uint64_t least, std::uint64_t most) {
    const auto validate = [=](std::string& text) -> std::string {
        const std::optional<std::uint64_t> bytes = bytes_in(text);
        if (!bytes || *bytes < least || *bytes > most) {
            return "'" + text + "' is not a size from " + std::to_string(least) + " to " +
                   std::to_string(most) + " bytes, as 64, 4KiB or 1MiB";
        }
        text = std::to_string(*bytes);
        return {};
    };
    return {validate, "SIZE in [" + std::to_string(least) + " - " + std::to_string(most) + "]"};
}

CLI::Validator decimal_number(double least, double most) {
    const auto range_with = [=](const char* between) {
        char range[64];
        std::snprintf(range, sizeof range, "%.10g%s%.10g", least, between, most);
        return std::string(range);
    };
    const auto validate = [=](std::string& text) -> std::string {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool is_number = error == std::errc() && end == text.data() + text.size();
        if (is_number && value >= least && value <= most) return {};  // NaN is neither.
        return "'" + text + "' is not a number from " + range_with(" to ");
    };
    return {validate, "FLOAT in [" + range_with(" - ") + "]"};
}

CLI::Validator time_span(Duration least, Duration most) {
    const auto validate = [=](std::string& text) -> std::string {
        const std::optional<Duration> span = parse_duration(text);
        if (span && *span >= least && *span <= most) return {};
        return "'" + text + "' is not a duration from " + base::duration_text(least) + " to " +
               base::duration_text(most) + ", such as 500ms, 1.5s or 2m";
    };
    return {validate, "TIME"};
}

CLI::Validator not_empty() {
    return {[](std::string& text) { return std::string(text.empty() ? "is empty" : ""); }, ""};
}

}  // namespace weft::tool
