#!/bin/bash
# Asks for two hours in a partition that gives half an hour.
sbatch --partition=short --time=02:00:00 --wrap="srun hostname"
