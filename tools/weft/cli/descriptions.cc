#include "commands.h"

namespace weft::tool {

void describe_perf(CLI::App& command, Invocation&) {
    command.description(
        "Measure calls, transfers, or the machine itself, with the matching floor beside them");
}

void describe_sim(CLI::App& command, Invocation&) {
    command.description("Run weft in a simulated cluster under faults, and check every outcome");
}

}  // namespace weft::tool
