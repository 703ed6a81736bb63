#!/bin/sh
# expect_refusal.sh PROTOC PLUGIN PROTO_DIR BAD_PROTO OUT_DIR
#
# The plugin refuses BAD_PROTO with exactly the messages of its "// EXPECT" lines, each at the start
# of a line, and writes nothing.
set -u
protoc=$1 plugin=$2 protos=$3 bad=$4 out=$5
dir=$(dirname "$(dirname "$bad")")
rm -rf "$out" && mkdir -p "$out" || exit 1

if "$protoc" -I "$dir" -I "$protos" --plugin=protoc-gen-weft="$plugin" --weft_out="$out" "$bad" \
    2> "$out.said"; then
    echo "$bad was not refused"
    exit 1
fi
sed -n 's,^ *// EXPECT ,,p' "$bad" > "$out.expected"
grep '^bad/' "$out.said" > "$out.problems"
diff "$out.expected" "$out.problems" || { cat "$out.said"; exit 1; }
if [ -n "$(ls "$out")" ]; then
    echo "$bad was refused, but code was written"
    exit 1
fi
