// Included first in everything that includes messages with maps, under tsan: the library of the
// system was compiled without it, and its map fields have two members less (map_field.h).
#pragma once

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
