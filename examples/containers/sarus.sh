# The last lines of a job script for Sarus.
image=nvcr.io/nvidia/jax:26.05-py3  # EDIT: `sarus images` lists those that you have pulled
srun --label --kill-on-bad-exit=1 --wait=0 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  sarus run --mount="type=bind,source=$PWD,destination=$PWD" --workdir="$PWD" "$image" \
  python "${@:-data_parallel.py}"
