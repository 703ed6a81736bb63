// `weft group`: its commands, and what they have in common.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <weft/group_view.h>

#include "cli/invocation.h"

namespace weft::tool {

void set_up_group_ls(CLI::App& command, Invocation& invocation);
void set_up_group_watch(CLI::App& command, Invocation& invocation);
void set_up_group_evict(CLI::App& command, Invocation& invocation);
void set_up_group_drain(CLI::App& command, Invocation& invocation);
void set_up_group_tree(CLI::App& command, Invocation& invocation);
void set_up_group_admit(CLI::App& command, Invocation& invocation);

// --group FILE.
void add_group_option(CLI::App& command, std::string& file);

// Printable, with spaces between.
std::string join(const std::vector<std::string>& uris);

// {"epoch","rank","incarnation","cause","uris"}; `after` is the view with the change.
Json json_of(const MemberChange& change, const GroupView& after);
// The same on a line of text.
std::string line_for(const MemberChange& change, const GroupView& after);

}  // namespace weft::tool
