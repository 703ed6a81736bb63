#!/bin/bash
# Runs each matching test case in its own process: a process with an open RDMA device can't fork.
#
#     cases.sh PROGRAM PATTERN
set -u
program=build/release/bin/$1
failed=0
count=0
while read -r name; do
    [ -n "$name" ] || continue
    count=$((count + 1))
    escaped=${name//,/\\,}
    escaped=${escaped//[/\\[}
    begin=$(date +%s%N)
    if words=$(timeout 120 "$program" --warn NoTests "$escaped" 2>&1); then
        verdict=passed
    else
        verdict=FAILED
        failed=$((failed + 1))
        echo "$words"
    fi
    echo "$verdict $((($(date +%s%N) - begin) / 1000000)) ms: $name"
done < <("$program" --list-test-names-only "$2")
echo "$((count - failed)) passed, $failed failed"
[ "$failed" = 0 ] && [ "$count" != 0 ]
