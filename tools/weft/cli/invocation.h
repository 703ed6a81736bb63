// What one run of the command was asked for in general, and what came of it.
#pragma once

#include <nlohmann/json.hpp>

#include <weft/status.h>

namespace weft::tool {

// Keeps the order in which fields were written.
using Json = nlohmann::ordered_json;

struct Invocation {
    bool json = false;
    // The exit status is its code.
    Status status;
    // With --json a subcommand that failed printed its own object already.
    bool printed = false;
};

// {"code":"UNAVAILABLE","number":14,"effect":…,"stage":…,"peer":…,"text":…}
Json to_json(const Status& status);

// The sentence to standard error; with --json {"error":{…}} to standard output, unless `printed`.
void print_failure(const Invocation& invocation);

// One line to standard output.
void print(const Json& object);

}  // namespace weft::tool
