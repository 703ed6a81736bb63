// The program that `weft perf` starts, with the same arguments.
#include "cli/run.h"

int main(int argc, char** argv) {
    static constexpr weft::tool::NamedCommand commands[] = {{"perf", weft::tool::set_up_perf}};
    return weft::tool::run(commands, argc, argv);
}
