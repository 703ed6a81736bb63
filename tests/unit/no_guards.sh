#!/bin/sh
# A static variable of a function that is made at its first use is locked meanwhile: a child that is
# forked then waits for ever when it comes to it. Of a library, what it has of them but two: one that
# is made when the library is loaded, and one that is used where no child is forked.
found=$(nm --demangle "$1" 2>/dev/null | grep 'guard variable for weft::') || exit 0
wrong=$(echo "$found" |
        grep -vE 'weft::base::\(anonymous namespace\)::forks\(\)::one|weft::core::\(anonymous namespace\)::waits\(\)::only')
[ -z "$wrong" ] || { echo "made at their first use (base::per_process(), found_once()): $wrong"; exit 1; }
