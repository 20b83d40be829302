#!/bin/bash
# A sweep as a SLURM array, one cell of sweep.py per task:
#   sbatch slurm.sh      starts it; the same command again goes on with what is not finished
#   python sweep.py      reads all results, when it is done
#SBATCH --job-name=fedlib
#SBATCH --array=0-8
#SBATCH --cpus-per-task=1
#SBATCH --mem=4G
#SBATCH --time=04:00:00
#SBATCH --requeue
# A run uses one thread, or a GPU: --gpus=1. A task that is started again goes on from the last checkpoint of its run.
set -euo pipefail

# One run store for all tasks, in a folder that all machines see.
export FEDLIB_RUNS="${FEDLIB_RUNS:-$SLURM_SUBMIT_DIR/runs}"

# If there is no such folder: a store on this machine, sent home at the end of the task. Lost with the machine.
# export FEDLIB_RUNS="${SLURM_TMPDIR:-/tmp}/runs"
# trap 'rsync -a "$FEDLIB_RUNS/" "$SLURM_SUBMIT_HOST:$SLURM_SUBMIT_DIR/runs/"' EXIT

cd "$SLURM_SUBMIT_DIR"
"${PYTHON:-python}" sweep.py

# The rows of the papers' tables instead, in a clean checkout that all machines see; no two tasks do the same run:
# "${PYTHON:-python}" -m fedlib.studies run --paper pfedsim --budget 3h
