#include "cli/number.h"

#include <charconv>

#include "base/text.h"

namespace weft::tool {

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
    const std::string range = std::to_string(least) + " to " + std::to_string(most);
    const auto judge = [=](std::string& text) -> std::string {
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool is_number = error == std::errc() && end == text.data() + text.size();
        if (!is_number || value < least || value > most) {
            return "'" + text + "' is not a whole number from " + range;
        }
        text = std::to_string(value);  // 010 is ten.
        return {};
    };
    return {judge, "INT in [" + std::to_string(least) + " - " + std::to_string(most) + "]"};
}

}  // namespace weft::tool
