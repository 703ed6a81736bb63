#!/bin/sh
# Configures and builds one preset (PRESET, default release); quiet unless something is wrong.
# Arguments: targets; none means all.
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
# What one checkout compiled serves another one.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=true

mkdir -p "build/$preset"
log=build/$preset/build.log
if ! cmake --preset "$preset" >"$log" 2>&1; then
    cat "$log" >&2
    echo "build: cmake failed ($preset)"
    exit 1
fi
echo "build: $preset, $(nproc) jobs"
if ! ninja -C "build/$preset" -j"$(nproc)" "$@" >"$log" 2>&1; then
    grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking|Re-checking|Running)' "$log" | tail -n 80 >&2
    echo "build: failed ($preset); all of it: $log"
    exit 1
fi
if grep -q 'warning:' "$log"; then
    grep -A6 'warning:' "$log" >&2
    echo "build: warnings ($preset); weft compiles without any"
    exit 1
fi
