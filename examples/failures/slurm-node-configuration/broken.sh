#!/bin/bash
# Asks for a type of GPU, and for more memory, than any node of the partition has.
sbatch --nodes=1 --gres=gpu:b300:1 --wrap="srun hostname"
sbatch --nodes=1 --mem=4T --wrap="srun hostname"
