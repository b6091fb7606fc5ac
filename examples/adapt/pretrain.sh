#!/bin/bash
#SBATCH -J pretrain
#SBATCH -A bigproj -p booster   # our queue
#SBATCH --nodes 4
#SBATCH --gres=gpu:8
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=96
#SBATCH --time 24:00:00

module purge
module load Stages/2024 CUDA/12
source /opt/miniconda3/etc/profile.d/conda.sh
conda activate pretrain

GPUS_PER_NODE=8
first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

srun torchrun --nnodes "$SLURM_NNODES" --nproc_per_node $GPUS_PER_NODE \
  --rdzv_backend c10d --rdzv_endpoint "$first_node:29500" \
  pretrain.py --batch-size 512
