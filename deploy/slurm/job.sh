#!/usr/bin/env bash
# A training with its own cluster in one SLURM job, which is requeued until the training is done:
#   sbatch deploy/slurm/job.sh DATA.zarr MODEL SNAPSHOTS [options of dasksvm train]
# It is requeued before its time limit, after a node failure and after preemption, and then resumes from the newest snapshot.
# DATA, MODEL and SNAPSHOTS must be on storage that all nodes share. On a machine with other users set up TLS: environment.md.
#SBATCH --job-name=dasksvm
#SBATCH --ntasks=8
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=4G
#SBATCH --time=08:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append
#SBATCH --output=dasksvm-%j.log
set -euo pipefail

if [ $# -lt 3 ]; then
    echo "usage: sbatch job.sh DATA.zarr MODEL SNAPSHOTS [options of dasksvm train]" >&2
    exit 2
fi
data=$1 model=$2 snapshots=$3
shift 3

# Activate the Python environment here, unless sbatch is called from within it.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
export NUMPY_MADVISE_HUGEPAGE=0 MALLOC_TRIM_THRESHOLD_=134217728 MALLOC_MMAP_THRESHOLD_=33554432
export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=false DASK_DASKSVM__WORKER_TIMEOUT=10m

# Two CPUs are for the coordinator, one for scheduler and driver, which this script starts, and the others for compute workers.
coordinator_threads=2
compute=$((SLURM_NTASKS - coordinator_threads - 1))
if [ "$compute" -lt 1 ]; then
    echo "--ntasks must be at least $((coordinator_threads + 2)), got $SLURM_NTASKS" >&2
    exit 2
fi
memory() { echo "$((SLURM_MEM_PER_CPU * $1 * 9 / 10))MiB"; }

mkdir -p "$snapshots"
file=$snapshots/scheduler-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}.json
# If the nodes have several networks, choose one with, for instance, DASKSVM_INTERFACE=ib0.
network=()
[ -z "${DASKSVM_INTERFACE:-}" ] || network=(--interface "$DASKSVM_INTERFACE")
trap 'kill $(jobs -p) 2>/dev/null; rm -f "$file"' EXIT

workers() {
    local role=$1 tasks=$2 threads=$3
    exec srun --exact --ntasks="$tasks" --cpus-per-task="$threads" --kill-on-bad-exit=0 \
        dask worker --scheduler-file "$file" "${network[@]}" --resources "$role=1" --nthreads "$threads" \
        --memory-limit "$(memory "$threads")" --local-directory "${SLURM_TMPDIR:-/tmp}" --no-dashboard
}

dask scheduler --scheduler-file "$file" "${network[@]}" --port 0 --dashboard-address :0 &
scheduler=$!
until [ -s "$file" ]; do
    kill -0 "$scheduler"
    sleep 0.2
done
workers coordinator 1 "$coordinator_threads" &
workers compute "$compute" 1 &

dasksvm train "$data" "$model" "$@" --scheduler-file "$file" --checkpoint "$snapshots" --every 30s --resume &
training=$!

# shellcheck disable=SC2329  # the trap calls it
again() {
    echo "time limit reached: requeueing job $SLURM_JOB_ID" >&2
    # The training writes a last snapshot before it ends. If it does not end in time, kill it, so that the job can be requeued.
    kill "$training" 2>/dev/null || true
    timeout 60 tail --pid="$training" -f /dev/null || kill -KILL "$training" || true
    wait "$training" || true
    scontrol requeue "$SLURM_JOB_ID"
}
trap again USR1

code=0
wait "$training" || code=$?
exit "$code"
