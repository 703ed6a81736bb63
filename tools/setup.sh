#!/bin/sh
# Installs the missing Debian packages of tools/packages.txt, or of the files that PACKAGE_LIST names.
# Prints what it installs, and nothing when no package is missing.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ -n "${PACKAGE_LIST:-}" ]; then
    # shellcheck disable=SC2086 # One word per file.
    set -- $PACKAGE_LIST
else
    set -- "$here/packages.txt"
fi
packages=$(sed 's/#.*//' "$@" | tr -s '[:space:]' '\n' | sed '/^$/d')

if [ -z "$packages" ]; then
    echo "setup: no package is named in: $*"
    exit 1
fi
if ! command -v dpkg-query >/dev/null; then
    echo "setup: this is not a Debian system: install the packages of $* by hand"
    exit 1
fi

missing=$(
    # shellcheck disable=SC2086 # One word per package.
    { dpkg-query -W -f '${db:Status-Status} ${Package}\n' $packages 2>/dev/null || true; } |
        sed -n 's/^installed //p' | { tr '\n' ' '; echo; } |
        { read -r installed || true
          for package in $packages; do
              case " ${installed:-} " in *" $package "*) ;; *) printf '%s ' "$package" ;; esac
          done; }
)
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    as_root=sudo
    if ! command -v sudo >/dev/null || { ! [ -t 0 ] && ! sudo -n true 2>/dev/null; }; then
        echo "setup: missing packages: $missing"
        echo "setup: needs root or sudo; as root, run: apt-get install $missing"
        exit 1
    fi
fi

echo "setup: installing $missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends $missing </dev/null >"$log" 2>&1
}
# The package lists of a fresh machine are empty or old: fetch them when the first attempt fails.
if ! install; then
    if ! $as_root apt-get update -q </dev/null >"$log" 2>&1 || ! install; then
        tail -n 15 "$log" >&2
        echo "setup: apt-get could not install: $missing"
        exit 1
    fi
fi
echo "setup: done"
