#!/bin/sh
# Builds the Debian packages into build/deb, from a copy of the files that git tracks or would track,
# and checks them with lintian: errors fail, warnings are printed. The last line is the verdict.
set -eu

cd "$(dirname "$0")/.."
if [ -z "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ] && command -v ccache >/dev/null; then
    # debhelper sets another HOME for the build, so ccache would not find its directory.
    CCACHE_DIR=$(ccache --get-config cache_dir)
    export CCACHE_DIR CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
version=$(sed -n '1s/^weft (\(.*\)) .*/\1/p' debian/changelog)
out=$PWD/build/deb
copy=$out/weft-$version
log=$out/build.log

rm -rf "$out"
mkdir -p "$copy"
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -co --exclude-standard -z
else
    find . -path ./build -prune -o -type f -print0
fi | tar -c --null --ignore-failed-read -T - | tar -x -C "$copy"

echo "deb: building $version, $(nproc) jobs"
if ! (cd "$copy" && DEB_BUILD_OPTIONS="parallel=$(nproc) noautodbgsym terse ${DEB_BUILD_OPTIONS:-}" \
    dpkg-buildpackage -us -uc </dev/null) >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "deb: failed; the whole log: build/deb/build.log"
    exit 1
fi
rm -rf "$copy"
if ! lintian --allow-root --fail-on error "$out"/*.changes >"$out/lintian.log" 2>&1; then
    cat "$out/lintian.log"
    echo "deb: lintian finds errors"
    exit 1
fi
cat "$out/lintian.log"
warnings=$(grep -c '^W:' "$out/lintian.log" || true)
echo "deb: $(echo build/deb/*.deb); lintian: no errors, $warnings warnings"
