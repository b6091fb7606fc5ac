#!/bin/bash
# Asks for a node of another cluster.
sbatch --nodelist=gpu017 --wrap="srun hostname"
