// `weft`: the command. What measures and what simulates are programs of their own, which a user of
// the services need not build.
#include "cli/run.h"

int main(int argc, char** argv) {
    using namespace weft::tool;
    static constexpr NamedCommand commands[] = {
        {"info", set_up_info},       {"ping", set_up_ping},   {"perf", describe_perf, true},
        {"sim", describe_sim, true}, {"serve", set_up_serve}, {"put", set_up_put},
        {"get", set_up_get},         {"ls", set_up_ls},       {"stat", set_up_stat},
        {"rm", set_up_rm},           {"set", set_up_set},     {"show", set_up_show},
        {"group", set_up_group},     {"new", set_up_new},
    };
    return run(commands, argc, argv);
}
