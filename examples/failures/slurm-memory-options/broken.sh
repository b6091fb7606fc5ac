#!/bin/bash
# Asks for memory in two ways at once.
sbatch --nodes=1 --mem=100M --mem-per-cpu=100M --wrap="srun hostname"
