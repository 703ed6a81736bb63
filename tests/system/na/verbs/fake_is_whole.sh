#!/bin/sh
# What an executable with the fake device (support/fake_verbs.h) still takes from rdma-core: words
# for numbers. A function of a device would get an object that is none of its.
taken=$(nm --dynamic --undefined-only "$1") || exit 1
wrong=$(echo "$taken" | grep -oE '\b_?(ibv|rdma)_[a-z0-9_]+' |
        grep -vxE 'ibv_wc_status_str|ibv_event_type_str|rdma_event_str')
[ -z "$wrong" ] || { echo "not in the fake device: $wrong"; exit 1; }
