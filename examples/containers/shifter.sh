# The last lines of a job script for Shifter, which mounts the folders that your site has chosen.
image=docker:nvcr.io/nvidia/jax:26.05-py3  # EDIT: `shifterimg images` lists those that have been pulled
srun --label --kill-on-bad-exit=1 --wait=0 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  shifter --image="$image" --module=gpu python "${@:-data_parallel.py}"
