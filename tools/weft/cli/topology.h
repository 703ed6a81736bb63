// The options for the tree of a collective.
#pragma once

#include <CLI/CLI.hpp>

#include <weft/group_options.h>

namespace weft::tool {

// --topology, --fanout, --by-host. `into` outlives the parsing; `what`: a prefix of the help texts.
void add_topology_options(CLI::App& command, Topology& into, const std::string& what = "");

}  // namespace weft::tool
