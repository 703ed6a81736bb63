#!/bin/bash
# Runs in the guest, on the host's files: makes the RDMA device, runs /out/job and writes its exit
# status to /out/status, which the host reads.
#
#     guest.sh REPOSITORY NUMBER
#
# NUMBER: that of this guest; 0 for a single guest. Two networks connect guests 1 and 2: 10.77.0.NUMBER
# carries the RDMA device, 10.78.0.NUMBER carries commands (control.py). A single guest has the RDMA
# device on a dummy interface, 10.77.0.1.
set -u
repository=$1
number=$2
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/tmp TERM=${TERM:-linux}

device() {
    if [ "$number" = 0 ]; then
        ip link add roce0 type dummy && ip address add 10.77.0.1/24 dev roce0 || return
        ip address add fd77::1/64 dev roce0 nodad || return
    else
        ip link set eth0 name roce0 && ip address add "10.77.0.$number/24" dev roce0 || return
        ip address add "fd77::$number/64" dev roce0 nodad || return
        ip link set eth1 name talk0 && ip address add "10.78.0.$number/24" dev talk0 || return
        ip link set talk0 up || return
    fi
    ip link set roce0 up && rdma link add rxe0 type rxe netdev roce0
}

ip link set lo up
hostname "softroce$number"
device || { echo "softroce: no rxe device: the kernel's messages are in console.log"; echo 70 >/out/status; exit; }
# The device's node, which programs open, appears a moment after the device.
for _ in $(seq 100); do [ -e /dev/infiniband/uverbs0 ] && break; sleep 0.05; done
ulimit -l unlimited
ulimit -n 65536
cd "$repository" || exit
echo 1 >/proc/sys/kernel/sysrq
if [ "$number" != 0 ]; then tools/softroce/control.py "10.78.0.$number" & fi
bash /out/job
echo $? >/out/status
