#!/bin/bash
#SBATCH -J pretrain
#SBATCH -A physics -p gpu-a100  # our queue
#SBATCH --nodes 4
#SBATCH --gres=gpu:a100:4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --time 24:00:00

module purge
module load cuda/12.4
source "$HOME/miniforge3/bin/activate" torch-env

GPUS_PER_NODE=4
first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

srun torchrun --nnodes "$SLURM_NNODES" --nproc_per_node $GPUS_PER_NODE \
  --rdzv_backend c10d --rdzv_endpoint "$first_node:29500" \
  pretrain.py --batch-size 512
