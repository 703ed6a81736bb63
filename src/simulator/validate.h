// Validates the arguments of a Simulation: each function aborts the program with a message that
// names `call`, the error and the allowed values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <weft/options.h>
#include <weft/sim/link.h>

namespace weft::sim {

[[noreturn]] void abort_misused(std::string_view call, const std::string& why);
// For a host that is up but has no runtime any more.
[[noreturn]] void abort_runtime_taken(const std::string& host);

// The name of a host that is added.
void validate_name(std::string_view call, std::string_view name);
void validate_options(std::string_view call, std::string_view host, const RuntimeOptions& options);
// See weft/sim/link.h for the ranges.
void validate_link(std::string_view call, const Link& link);
// From 0 to 1.
void validate_share(std::string_view call, std::string_view what, double share);
// `name` is no host; `known`: all hosts.
[[noreturn]] void refuse_unknown(std::string_view call, std::string_view name,
                                 const std::vector<std::string_view>& known);

}  // namespace weft::sim
