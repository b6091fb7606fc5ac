# The last lines of a job script for the container engine of CSCS: jax.toml names the image and the folders.
srun --label --kill-on-bad-exit=1 --wait=0 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  --environment="$PWD/jax.toml" python "${@:-data_parallel.py}"
