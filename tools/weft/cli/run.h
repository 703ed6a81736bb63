// What each program of the command does with its arguments: parse, run, print, exit.
#pragma once

#include <span>

#include "commands.h"

namespace weft::tool {

struct NamedCommand {
    const char* name;
    SetUp set_up;
    // For a program of its own, which `weft` starts; then set_up describes the command only.
    bool is_separate = false;
};

// The exit status: the number of the status code (0 is OK), 64 for wrong usage.
int run(std::span<const NamedCommand> commands, int argc, char** argv);

}  // namespace weft::tool
