#!/bin/bash
# Asks for GPUs of each node in two ways at once, one with a type and one without.
sbatch --nodes=1 --gpus-per-node=2 --gres=gpu:a100:2 --wrap="srun hostname"
