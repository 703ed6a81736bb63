#!/bin/sh
# Builds one preset (PRESET, default release) and runs its tests. LABELS: a regular expression of
# labels (unit, conformance, integration, ...), default all. TARGETS: the targets to build, default all;
# for LABELS=unit, tests_unit is sufficient. The last line is the verdict.
set -eu

cd "$(dirname "$0")/.."
preset=${PRESET:-release}
# shellcheck disable=SC2086 # One word per target.
if ! tools/build.sh ${TARGETS:-}; then
    echo "test: nothing ran, the build failed ($preset)"
    exit 1
fi

log=build/$preset/test.log
CAPABILITY_FILE=$PWD/build/$preset/capabilities.txt
export CAPABILITY_FILE
: >"$CAPABILITY_FILE"

status=0
# -j counts quarters of processors (tests/catch.cmake).
(cd "build/$preset" && ../../tools/progress.py test test.log ../../tools/sanitized.sh ctest \
    -j"$((4 * $(nproc)))" --no-tests=error --output-on-failure ${LABELS:+-L "$LABELS"}) || status=$?
if [ $status != 0 ]; then
    # The failures, without the list of passed tests.
    grep -vE '^ *[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed |^ *Start +[0-9]+: ' "$log" | tail -n 200
fi

counts=$(sed -n 's/^[0-9]*% tests passed, \([0-9]*\) tests* failed out of \([0-9]*\)$/\1 \2/p' "$log")
failed=${counts% *}
all=${counts#* }
if [ -z "$counts" ]; then
    tail -n 20 "$log"
    echo "test: no tests ran ($preset)"
    exit 1
fi
sort -u -o "$CAPABILITY_FILE" "$CAPABILITY_FILE"
cat "$CAPABILITY_FILE"
noted=$(wc -l <"$CAPABILITY_FILE")
[ "$noted" = 0 ] || echo "test: $noted capabilities noted above: transports lack these on this machine"
echo "test: build $preset${LABELS:+, labels $LABELS}; the log is $log"
echo "test: $((all - failed)) passed, $failed failed"
exit $status
