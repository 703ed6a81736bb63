// The program that `weft sim` starts, with the same arguments.
#include "cli/run.h"

int main(int argc, char** argv) {
    static constexpr weft::tool::NamedCommand commands[] = {{"sim", weft::tool::set_up_sim}};
    return weft::tool::run(commands, argc, argv);
}
