#!/bin/sh
# Runs a command with the options of the sanitizers; they have no effect on other builds.
#     tools/sanitized.sh build/tsan/bin/weft_unit "[seeded]"
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1

# Leaks of third-party libraries, each with its reason.
LSAN_OPTIONS="suppressions=$root/tests/suppressions/lsan.txt:print_suppressions=0"
# A child of a test must end at its first report: otherwise the test may kill it before its exit status
# shows the report. Forked children of tests start threads, which glibc permits.
TSAN_OPTIONS="halt_on_error=1 die_after_fork=0"
export LSAN_OPTIONS TSAN_OPTIONS
exec "$@"
