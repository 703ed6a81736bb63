#!/bin/bash
# Tests between the RDMA devices of two guests: programs of ibverbs-utils and perftest, and packet loss,
# which a device connected to itself does not show.
#
#     joined.sh FAR_HOST FAR_CONTROL
set -u
far=$1
control=$2

tell() { tools/softroce/control.py --tell "$control" "$1"; }
# Runs a program between both guests: the server on the far one, then the client here once that listens.
between() {
    tell "$* >/tmp/far.log 2>&1 & echo \$!" >/tmp/pid || return
    for _ in $(seq 100); do
        if "$@" "$far" >/tmp/near.log 2>&1; then cat /tmp/near.log; return 0; fi
        sleep 0.1
    done
    cat /tmp/near.log
    tell "cat /tmp/far.log; kill $(cat /tmp/pid)"
    return 1
}

between ibv_rc_pingpong -d rxe0 -g 1 -n 200 || exit
between ib_send_lat -F -R -d rxe0 -s 64 -n 200 || exit
tc qdisc add dev roce0 root netem loss 2% || exit
between ibv_rc_pingpong -d rxe0 -g 1 -n 200
status=$?
told=$(tc -s qdisc show dev roce0)
tc qdisc del dev roce0 root || exit
echo "$told"
[ $status = 0 ] && [[ $told =~ "dropped "[1-9] ]]
