#!/bin/sh
#SBATCH --ntasks=64
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=32
#SBATCH --exclusive
#SBATCH --qos normal --account physics_dept

module load openmpi
mpirun ./simulate input.nml
