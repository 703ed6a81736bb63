// A readable time span: "1.5 s", "20 ms", "350 us", "42 ns".
#pragma once

#include <cstdio>
#include <string>

#include <weft/time.h>

namespace weft::base {

inline std::string duration_text(Duration span) {
    const auto ns = static_cast<double>(span.count());
    const double size = ns < 0 ? -ns : ns;
    char text[32];
    if (size >= 1e9) {
        std::snprintf(text, sizeof text, "%.3g s", ns / 1e9);
    } else if (size >= 1e6) {
        std::snprintf(text, sizeof text, "%.3g ms", ns / 1e6);
    } else if (size >= 1e3) {
        std::snprintf(text, sizeof text, "%.3g us", ns / 1e3);
    } else {
        std::snprintf(text, sizeof text, "%.0f ns", ns);
    }
    return text;
}

}  // namespace weft::base
