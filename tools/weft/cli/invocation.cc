#include "cli/invocation.h"

#include <cstdio>
#include <string>

#include "base/text.h"
#include "cli/text.h"

namespace weft::tool {

Json to_json(const Status& status) {
    Json json;
    json["code"] = name_of(status.code());
    json["number"] = static_cast<int>(status.code());
    json["effect"] = name_of(status.effect());
    json["stage"] = name_of(status.stage());
    json["peer"] = status.peer();
    json["text"] = status.text();
    return json;
}

void print(const Json& object) {
    // The object may contain bytes of a peer: invalid UTF-8 is replaced, and a terminal gets ASCII.
    const std::string line = object.dump(-1, ' ', true, Json::error_handler_t::replace);
    std::printf("%s\n", line.c_str());
}

void print_end(Invocation& invocation) {
    if (!invocation.status.ok()) {
        std::fflush(stdout);
        std::fprintf(stderr, "weft: %s\n", base::printable(invocation.status.to_string()).c_str());
        invocation.answer["error"] = to_json(invocation.status);
    }
    if (invocation.json && !invocation.answer.is_null()) print(invocation.answer);
}

}  // namespace weft::tool
