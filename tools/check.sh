#!/bin/sh
# Format, layers, classes, documentation, language, texts of failures, mutants, self-contained headers and clang-tidy
# over weft's own code. Runs all steps and fails if any fails; the last line is the verdict. STEPS selects some:
# STEPS="format layers".
set -u

cd "$(dirname "$0")/.." || exit 1
jobs=$(nproc)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=
failed=

sources() { git ls-files -co --exclude-standard -- "$@" | sort; }

format() { sources '*.cc' '*.h' | xargs -P"$jobs" -n16 clang-format --dry-run -Werror; }
layers() { tools/check_layers.py; }
classes() { tools/check_classes.py; }
docs() { tools/check_docs.py && tools/check_limits.py && tools/diagrams.py --check; }
language() { tools/check_language.py; }
texts() { tools/error_texts.py --check; }
mutants() { tests/mutants/mutants.py --check; }

# Generated headers and the compile commands come from the release build.
configured() { PRESET=release tools/build.sh; }

headers() {
    configured || return 1
    generated=build/release/generated
    # One compiler run per header: each header must compile without another one before it.
    sources 'include/weft/*.h' | xargs -P"$jobs" -I{} sh -c \
        "g++ -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Iinclude ${generated:+-isystem $generated} \
         -x c++ -include {} /dev/null || { echo '{}: does not stand alone'; exit 255; }"
}

tidy() {
    configured || return 1
    tools/tidy.py build/release
}

for step in ${STEPS:-format layers classes docs language texts mutants headers tidy}; do
    started=$(date +%s)
    if $step >"$log" 2>&1; then
        passed="$passed $step"
        echo "check: $step passed in $(($(date +%s) - started)) s"
    else
        failed="$failed $step"
        tail -n 100 "$log"
        echo "check: $step FAILED after $(($(date +%s) - started)) s"
    fi
done

if [ -n "$failed" ]; then
    echo "check: failed:$failed${passed:+ (passed:$passed)}"
    exit 1
fi
echo "check: passed:$passed"
