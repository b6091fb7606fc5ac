#!/bin/bash
# Keeps the sentence that sbatch prints, in place of the number in it.
first=$(sbatch --wrap="srun hostname")
sbatch --dependency="afterok:$first" --wrap="srun hostname"
