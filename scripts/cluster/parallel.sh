#!/bin/sh
# Runs the jobs of `tconv batch --jobs` with GNU parallel, and none twice:
#
#   tconv batch --jobs models /shared/converted -t safetensors --shard-size 5G > jobs
#   scripts/cluster/parallel.sh jobs -j 8
#   scripts/cluster/parallel.sh jobs --sshloginfile hosts    over ssh, with paths that all hosts share
#   tconv index /shared/converted
#
# After a kill the same command goes on: jobs.log says what was done, and what failed runs again. The
# log counts lines, so it goes where the list is newer: all jobs run again, which does no harm.
set -eu
jobs=$1
shift
[ ! "$jobs" -nt "$jobs.log" ] || rm -f -- "$jobs.log"
export PARALLEL_SHELL=/bin/sh # which the lines are quoted for
exec parallel --will-cite --joblog "$jobs.log" --resume-failed "$@" :::: "$jobs"
