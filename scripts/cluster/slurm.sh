#!/bin/sh
# An array of jobs for Slurm, of the lines that `tconv batch --jobs` prints:
#
#   tconv batch --jobs models /shared/converted -t safetensors --shard-size 5G > jobs
#   join=$(sbatch --parsable --array=1-64 scripts/cluster/slurm.sh jobs)
#   sbatch --dependency=afterok:$join --wrap 'tconv index /shared/converted'
#
# Each task of the array does every 64th line, so that there may be more lines than Slurm allows
# tasks. A task whose node fails is put back into the queue: jobs can run again at any time.
#SBATCH --job-name=tconv
#SBATCH --cpus-per-task=1
#SBATCH --mem=512M
#SBATCH --requeue
set -u
jobs=$1
code=0
line=0
while IFS= read -r job <&3; do
    line=$((line + 1))
    if [ $((line % SLURM_ARRAY_TASK_COUNT)) -eq $((SLURM_ARRAY_TASK_ID % SLURM_ARRAY_TASK_COUNT)) ]; then
        sh -ec "$job" || code=$?
    fi
done 3<"$jobs"
exit "$code"
