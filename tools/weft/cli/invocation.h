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
    // With --json: the object that is printed at the end, with the failure if there is one.
    Json answer;
};

// {"code":"UNAVAILABLE","number":14,"effect":…,"stage":…,"peer":…,"text":…}
Json to_json(const Status& status);

// With --json `answer`, of a failure with its "error"; a failure's sentence to standard error.
void print_end(Invocation& invocation);

// One line to standard output.
void print(const Json& object);

}  // namespace weft::tool
