// Reads a group file again if it is written in place meanwhile.
#pragma once

#include <string>

#include <weft/group_view.h>

namespace weft::group {

struct Reading {
    std::string text;
    bool is_torn = false;   // The file changed while it was read.
    bool is_fresh = false;  // Written within the last second: the writer may continue.
};

inline constexpr int readings_max = 3;
inline constexpr int pause_ms = 10;

// Reads until the text is whole and a valid view, at most readings_max times, with pause() between.
// A malformed file that is not fresh is not read again. Errors: those of read() and parse();
// ABORTED when the file, which `what` names, changed during each reading.
template <class Read, class Parse, class Pause>
Result<GroupView> read_whole(const std::string& what, Read read, Parse parse, Pause pause) {
    for (int count = 1;; ++count) {
        const Result<Reading> reading = read();
        if (!reading) return reading.status();
        if (!reading->is_torn) {
            Result<GroupView> view = parse(reading->text);
            if (view || !reading->is_fresh || count == readings_max) return view;
        } else if (count == readings_max) {
            return fail(Code::aborted, what + " changed each of the " + std::to_string(count) +
                                           " times that it was read; write a new file and rename "
                                           "it to this name");
        }
        pause();
    }
}

}  // namespace weft::group
