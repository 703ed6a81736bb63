// The general options of one run of the command, and its result.
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
    // With --json: the object that is printed at the end, with the failure if there is one.
    Json answer;
};

// {"code":"UNAVAILABLE","number":14,"effect":…,"stage":…,"peer":…,"text":…}
Json to_json(const Status& status);

// Prints `answer` with --json, after a failure with its "error". Prints the text of a failure to
// standard error.
void print_end(Invocation& invocation);

// One line to standard output.
void print(const Json& object);

}  // namespace weft::tool
