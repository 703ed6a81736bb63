// Notes a feature that a transport lacks on this machine, or a test that can't run; `make test`
// counts the notes.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

namespace weft::test {

// Prints "capability: SCHEME: TEXT" once per process, and appends it to $CAPABILITY_FILE.
inline void note_capability(const std::string& scheme, const std::string& text) {
    static std::set<std::string> noted;
    const std::string line = "capability: " + scheme + ": " + text + "\n";
    if (!noted.insert(line).second) return;
    std::fputs(line.c_str(), stdout);
    const char* path = std::getenv("CAPABILITY_FILE");
    std::FILE* file = path ? std::fopen(path, "a") : nullptr;
    if (!file) return;
    std::fputs(line.c_str(), file);
    std::fclose(file);
}

}  // namespace weft::test
