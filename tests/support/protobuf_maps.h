// Included first by every file that includes messages with maps, under tsan: the system's library
// was compiled without it, so that its map fields have two members fewer (map_field.h).
#pragma once

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
