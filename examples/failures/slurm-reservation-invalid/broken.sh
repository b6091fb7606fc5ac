#!/bin/bash
# Asks for a reservation that has ended.
sbatch --reservation=workshop --wrap="srun hostname"
