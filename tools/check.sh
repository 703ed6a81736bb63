#!/bin/sh
# Format, layers, documentation, language, self-contained headers, joined sources and clang-tidy over weft's
# own code. Runs all steps and fails if any fails; the last line is the verdict. STEPS selects some:
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
docs() { tools/check_docs.py; }
language() { tools/check_language.py; }

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

# A build joins sources in batches; each new file moves the borders of the later ones.
joined() {
    configured || return 1
    tools/joined.py build/release
}

tidy() {
    configured || return 1
    tools/tidy.py build/release
}

for step in ${STEPS:-format layers docs language headers joined tidy}; do
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
