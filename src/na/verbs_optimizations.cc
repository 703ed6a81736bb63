#include "na/verbs_optimizations.h"

#include <algorithm>

namespace weft::na {

std::string optimization_names() {
    std::string text;
    for (const VerbsOptimizations::Switch& one : VerbsOptimizations::switches()) {
        if (!text.empty()) text += ", ";
        text += one.name;
    }
    return text;
}

Result<VerbsOptimizations> optimizations_without(std::string_view names) {
    VerbsOptimizations optimizations;
    while (!names.empty()) {
        const std::string_view name = names.substr(0, names.find(','));
        const auto switches = VerbsOptimizations::switches();
        const auto* one = std::ranges::find(switches, name, &VerbsOptimizations::Switch::name);
        if (one == switches.end() || name.size() + 1 == names.size()) {
            return fail(Code::invalid_argument, "'" + std::string(name) + "' is none of " +
                                                    optimization_names() + ", with commas between");
        }
        optimizations.*one->is_on = false;
        names.remove_prefix(std::min(name.size() + 1, names.size()));
    }
    return optimizations;
}

}  // namespace weft::na
