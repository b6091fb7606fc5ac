# The last lines of a job script for Podman-HPC, which passes on no variables and mounts no folders by itself.
image=nvcr.io/nvidia/jax:26.05-py3  # EDIT: `podman-hpc images` lists those that you have pulled
srun --label --kill-on-bad-exit=1 --wait=0 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  podman-hpc run --rm --gpu --nccl --net=host --ipc=host --env='SLURM_*' \
  --volume="$PWD:$PWD" --workdir="$PWD" "$image" python "${@:-data_parallel.py}"
