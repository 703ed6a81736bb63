#!/bin/sh
# hello.sh SERVER CLIENT: the README's example over shared memory, as a user would run it.
set -u
server=$1 client=$2
XDG_RUNTIME_DIR=$(mktemp -d) || exit 1
export XDG_RUNTIME_DIR
"$server" &
pid=$!
trap 'kill $pid 2> /dev/null; rm -rf "$XDG_RUNTIME_DIR"' EXIT

tries=0
until said=$("$client" ada 2> "$XDG_RUNTIME_DIR/complaint"); do
    tries=$((tries + 1))
    if [ $tries -ge 50 ] || ! kill -0 $pid; then
        cat "$XDG_RUNTIME_DIR/complaint"
        exit 1
    fi
    sleep 0.1
done
[ "$said" = "hello ada" ] || { echo "the client said: $said"; exit 1; }
kill -TERM $pid
wait $pid || { echo "the server did not end well: $?"; exit 1; }
