// The macros of Catch2 that tests/support uses, for fuzz targets: the first failed check ends the
// program.
#pragma once

#include "fuzz/fuzz.h"

#define REQUIRE(...) ::weft::fuzz::must(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__)
#define REQUIRE_FALSE(...) ::weft::fuzz::must(!static_cast<bool>(__VA_ARGS__), "!" #__VA_ARGS__)
#define CHECK(...) REQUIRE(__VA_ARGS__)
#define CHECK_FALSE(...) REQUIRE_FALSE(__VA_ARGS__)
#define INFO(...) static_cast<void>(0)
#define FAIL(...) ::weft::fuzz::must(false, #__VA_ARGS__)
