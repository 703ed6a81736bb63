#include "cli/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace weft::tool {

namespace {

struct Unit {
    double from;
    const char* name;
};

std::string with_unit(double value, double divisor, const char* unit) {
    const double scaled = value / divisor;
    const int decimals = scaled >= 100 || scaled == std::floor(scaled) ? 0 : scaled >= 10 ? 1 : 2;
    char text[64];
    std::snprintf(text, sizeof text, "%.*f%s%s", decimals, scaled, *unit ? " " : "", unit);
    return text;
}

template <std::size_t n>
std::string largest_unit(double value, const Unit (&units)[n]) {
    for (const Unit& unit : units) {
        if (value >= unit.from) return with_unit(value, unit.from, unit.name);
    }
    return with_unit(value, units[n - 1].from, units[n - 1].name);
}

// Columns, not bytes: counts each UTF-8 sequence once.
std::size_t width_of(const std::string& text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    }));
}

}  // namespace

std::string format_ns(double nanoseconds) {
    static constexpr Unit units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
    return largest_unit(nanoseconds, units);
}

std::string format_bytes(double bytes) {
    static constexpr Unit units[] = {
        {1073741824.0, "GiB"}, {1048576.0, "MiB"}, {1024.0, "KiB"}, {1, "B"}};
    return largest_unit(bytes, units);
}

std::string format_count(double count) {
    static constexpr Unit units[] = {{1e9, "G"}, {1e6, "M"}, {1e4, "k"}, {1, ""}};
    if (count >= 1e4 && count < 1e6) return with_unit(count, 1e3, "k");
    return largest_unit(count, units);
}

std::optional<Duration> parse_duration(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || !(value >= 0)) return std::nullopt;
    const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    static constexpr Unit units[] = {{1e9, ""},   {1e9, "s"},  {1e6, "ms"},  {1e3, "us"},
                                     {1.0, "ns"}, {60e9, "m"}, {3600e9, "h"}};
    for (const Unit& known : units) {
        if (unit != known.name) continue;
        const double nanoseconds = value * known.from;
        if (nanoseconds > 9e18) return std::nullopt;
        return Duration(static_cast<Duration::rep>(nanoseconds));
    }
    return std::nullopt;
}

std::string Table::text() const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) {
            widths[i] = std::max(widths[i], width_of(row[i]));
        }
    }
    std::string text;
    for (const auto& row : rows_) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string pad(widths[i] - width_of(row[i]), ' ');
            if (i > 0) text += "  ";
            text += left_.count(i) != 0 ? row[i] + pad : pad + row[i];
        }
        while (text.ends_with(' ')) text.pop_back();
        text += '\n';
    }
    return text;
}

}  // namespace weft::tool
