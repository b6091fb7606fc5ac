#!/bin/bash
# Asks for 5000 array tasks; this cluster takes numbers up to 1000.
sbatch --array=0-4999 --wrap="srun hostname"
