// The choice of a mutant (tests/mutants/*.patch), by the environment variable MUTANT. Only the copy
// of the sources that tests/mutants/mutants.py patches includes this file.
#pragma once

#include <cstdlib>
#include <string_view>

namespace weft {

inline const std::string_view chosen_mutant = [] {
    const char* const name = std::getenv("MUTANT");
    return std::string_view(name ? name : "");
}();

inline bool is_mutated(std::string_view name) { return name == chosen_mutant; }

}  // namespace weft
