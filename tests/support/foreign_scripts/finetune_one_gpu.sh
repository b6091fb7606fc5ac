#!/usr/bin/env bash
# Fine-tunes on one GPU.
#SBATCH --job-name=finetune
#SBATCH --partition=gpu_short
#SBATCH --gpus=v100:1
#SBATCH --constraint="v100|a100"
#SBATCH --mem=64GB
#SBATCH --array=0-4%2
#SBATCH --mail-type=END,FAIL

module load python/3.10
source /projects/nlp/envs/ft/bin/activate

python finetune.py --seed "$SLURM_ARRAY_TASK_ID"
