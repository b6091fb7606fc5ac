#!/bin/bash
# Asks for nodes with a feature that none has.
sbatch --constraint=h100 --wrap="srun hostname"
