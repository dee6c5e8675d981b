#!/bin/sh
# An array of jobs for Slurm, of the lines that `tconv batch --jobs` prints:
#
#   tconv batch --jobs models /shared/converted -t safetensors --shard-size 5G > jobs
#   join=$(sbatch --parsable --array=1-64 scripts/cluster/slurm.sh jobs)
#   sbatch --dependency=afterok:$join --wrap 'tconv index /shared/converted'
#
# Each task of the array does every 64th line, so that there may be more lines than Slurm allows
# tasks. A task whose node fails is put back into the queue: jobs can run again at any time. An array
# with gaps is refused, since nobody would do their lines; one of a single task does all lines.
#SBATCH --job-name=tconv
#SBATCH --cpus-per-task=1
#SBATCH --mem=512M
#SBATCH --requeue
set -u
jobs=$1
code=0
line=0
step=${SLURM_ARRAY_TASK_STEP:-1}
[ "$step" -gt 0 ] || step=1
task=$(((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN) / step))
if [ $(((SLURM_ARRAY_TASK_MAX - SLURM_ARRAY_TASK_MIN) / step + 1)) -ne "$SLURM_ARRAY_TASK_COUNT" ]; then
    echo "slurm.sh: the array has gaps: use one such as 1-$SLURM_ARRAY_TASK_COUNT" >&2
    exit 2
fi
while IFS= read -r job <&3; do
    if [ $((line % SLURM_ARRAY_TASK_COUNT)) -eq "$task" ]; then
        sh -ec "$job" || code=$?
    fi
    line=$((line + 1))
done 3<"$jobs"
exit "$code"
