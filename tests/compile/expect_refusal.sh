#!/bin/sh
# expect_refusal.sh SOURCE COMPILER FLAGS...
#
# The compiler refuses SOURCE with the text of its "// EXPECT" line.
set -u
source=$1
shift
expected=$(sed -n 's,^ *// EXPECT ,,p' "$source")
[ -n "$expected" ] || { echo "$source expects nothing"; exit 1; }
said=$("$@" -fsyntax-only "$source" 2>&1) && { echo "$source was not refused"; exit 1; }
case $said in
*"$expected"*) ;;
*)
    echo "$source was refused, but not with \"$expected\":"
    echo "$said"
    exit 1
    ;;
esac
