// What a plugin exports, found by dlsym(): functions that return nullptr, or what went wrong.
#pragma once

#include <cstddef>

extern "C" {
// Serves at sm://`name` and at a port of the loopback interface; writes the second address.
const char* plugin_start(const char* name, char* tcp_uri, std::size_t bytes);
// Calls the plugin `other` at `uri`, which may be this one.
const char* plugin_call(const char* uri, const char* other);
// Uses weft's own messages by reflection, as JSON and as options of a method.
const char* plugin_reflect();
void plugin_stop();
}
