#!/bin/sh
# Configures and builds one preset (PRESET, default release); quiet unless something is wrong.
# Arguments: targets; none means all. TESTS=OFF: without the tests, unless a former build has them.
set -eu

cd "$(dirname "$0")/.."
preset=${PRESET:-release}
case $preset in
    release | clang | dev | asan-ubsan | tsan | mutants | fuzz) ;;
    *) echo "build: PRESET=$preset is not one of release, clang, dev, asan-ubsan, tsan, mutants, fuzz"; exit 64 ;;
esac
if [ -z "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ] && command -v ccache >/dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
# Checkouts share compiled objects.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=true

mkdir -p "build/$preset"
log=build/$preset/build.log
tests=
if [ "$preset" = release ]; then
    tests=-DWEFT_BUILD_TESTS=ON
    # A failed configuration leaves a CMakeCache.txt, too, but no build.ninja.
    if [ "${TESTS:-}" = OFF ] && ! { [ -f "build/$preset/build.ninja" ] &&
        grep -q '^WEFT_BUILD_TESTS:BOOL=ON' "build/$preset/CMakeCache.txt"; }; then
        tests=-DWEFT_BUILD_TESTS=OFF
    fi
fi
# shellcheck disable=SC2086 # Empty is no word.
if ! cmake --preset "$preset" $tests >"$log" 2>&1; then
    cat "$log" >&2
    echo "build: cmake failed ($preset)"
    exit 1
fi
echo "build: $preset, $(nproc) jobs"
if ! tools/progress.py build "$log" ninja -C "build/$preset" -j"$(nproc)" "$@"; then
    grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking|Re-checking|Running)' "$log" | tail -n 80 >&2
    echo "build: failed ($preset); the whole log: $log"
    exit 1
fi
if grep -q 'warning:' "$log"; then
    grep -A6 'warning:' "$log" >&2
    echo "build: warnings ($preset); weft compiles without any"
    exit 1
fi
