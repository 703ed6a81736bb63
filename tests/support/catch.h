// Catch2 3 or 2.13. In a fuzz target, which has no test runner, the subset that support code uses.
#pragma once

#if defined(WEFT_FUZZ_TARGET)
#include "fuzz/requirements.h"
#elif __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
