// The subcommands of `weft`. A new one is a function here and a row in main.cc, and is described in
// docs/cli.md and docs/man/weft.1.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/invocation.h"

namespace weft::tool {

// Describes a subcommand on `command`. Parsing runs it and stores the outcome in `invocation`.
using SetUp = void (*)(CLI::App& command, Invocation& invocation);

void set_up_info(CLI::App& command, Invocation& invocation);
void set_up_new(CLI::App& command, Invocation& invocation);
// Of a program of its own: the line of `weft --help`.
void describe_perf(CLI::App& command, Invocation& invocation);
void describe_sim(CLI::App& command, Invocation& invocation);

void set_up_perf(CLI::App& command, Invocation& invocation);
void set_up_ping(CLI::App& command, Invocation& invocation);

void set_up_group(CLI::App& command, Invocation& invocation);

void set_up_sim(CLI::App& command, Invocation& invocation);

void set_up_serve(CLI::App& command, Invocation& invocation);
void set_up_put(CLI::App& command, Invocation& invocation);
void set_up_get(CLI::App& command, Invocation& invocation);
void set_up_ls(CLI::App& command, Invocation& invocation);
void set_up_stat(CLI::App& command, Invocation& invocation);
void set_up_rm(CLI::App& command, Invocation& invocation);
void set_up_set(CLI::App& command, Invocation& invocation);
void set_up_show(CLI::App& command, Invocation& invocation);

}  // namespace weft::tool
