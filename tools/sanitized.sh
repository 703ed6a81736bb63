#!/bin/sh
# Runs a command with what the sanitizers must know; harmless without them.
#     tools/sanitized.sh build/tsan/bin/weft_unit "[seeded]"
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1

# Leaks of libraries that are not ours, each with its reason.
LSAN_OPTIONS="suppressions=$root/tests/suppressions/lsan.txt:print_suppressions=0"
# A child of a test must not outlive its first report: it may be killed before it could tell by its
# exit status. Forked children of tests start threads, which is right under glibc.
TSAN_OPTIONS="halt_on_error=1 die_after_fork=0"
export LSAN_OPTIONS TSAN_OPTIONS
exec "$@"
