// The overlay of WEFT_* variables on a program's options. docs/environment.md is the table.
#pragma once

#include <string>

#include <weft/options.h>
#include <weft/result.h>

namespace weft::api {

struct EffectiveOptions {
    RuntimeOptions options;
    std::string warning;  // Lists WEFT_ variables that weft does not read. Empty: none.
};

// Errors: INVALID_ARGUMENT naming the variable, its value and the valid values.
Result<EffectiveOptions> overlay_environment(RuntimeOptions options, char** environment);

// RuntimeOptions::contexts, with 0 replaced by the number of cpus that the process may use.
unsigned contexts_of(const RuntimeOptions& options);

// Validates the options of a program. Errors: INVALID_ARGUMENT naming the option.
Status validate_options(const RuntimeOptions& options);

}  // namespace weft::api
