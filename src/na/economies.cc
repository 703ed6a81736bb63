#include "na/economies.h"

#include <algorithm>

namespace weft::na {

std::string economy_names() {
    std::string text;
    for (const Economies::Row& row : Economies::rows()) {
        if (!text.empty()) text += ", ";
        text += row.name;
    }
    return text;
}

Result<Economies> economies_without(std::string_view names) {
    Economies economies;
    while (!names.empty()) {
        const std::string_view name = names.substr(0, names.find(','));
        const auto rows = Economies::rows();
        const auto* row = std::ranges::find(rows, name, &Economies::Row::name);
        if (row == rows.end() || name.size() + 1 == names.size()) {
            return fail(Code::invalid_argument, "'" + std::string(name) + "' is none of " +
                                                    economy_names() + ", with commas between");
        }
        economies.*row->is_on = false;
        names.remove_prefix(std::min(name.size() + 1, names.size()));
    }
    return economies;
}

}  // namespace weft::na
