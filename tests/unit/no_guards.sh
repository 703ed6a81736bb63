#!/bin/sh
# A static variable of a function that is made at its first use is locked meanwhile: a child that is
# forked then waits for ever when it comes to it. The library has one, which is made when it is loaded.
found=$(nm --demangle "$1" 2>/dev/null | grep 'guard variable for weft::') || exit 0
wrong=$(echo "$found" |
        grep -vF 'weft::base::(anonymous namespace)::forks()::one')
[ -z "$wrong" ] || { echo "made at their first use (base::per_process(), probe_once()): $wrong"; exit 1; }
