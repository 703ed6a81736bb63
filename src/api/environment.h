// The overlay of WEFT_* variables on a program's options. docs/environment.md is the table.
#pragma once

#include <weft/options.h>
#include <weft/result.h>

namespace weft::api {

// Errors: INVALID_ARGUMENT naming the variable, its value and what would be good.
Result<RuntimeOptions> overlay_environment(RuntimeOptions options, char** environment);

// What a program may set. Errors: INVALID_ARGUMENT naming the option.
Status judge(const RuntimeOptions& options);

}  // namespace weft::api
