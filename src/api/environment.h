// The overlay of WEFT_* variables on a program's options. docs/environment.md is the table.
#pragma once

#include <string>

#include <weft/options.h>
#include <weft/result.h>

namespace weft::api {

struct Overlaid {
    RuntimeOptions options;
    std::string warning;  // Names that start with WEFT_ and are not weft's. Empty: there are none.
};

// Errors: INVALID_ARGUMENT naming the variable, its value and what would be good.
Result<Overlaid> overlay_environment(RuntimeOptions options, char** environment);

// What a program may set. Errors: INVALID_ARGUMENT naming the option.
Status judge(const RuntimeOptions& options);

}  // namespace weft::api
