#!/bin/bash
# Asks for the controller on a machine where none runs.
sed "s/^SlurmctldHost=.*/SlurmctldHost=node1/; s/^MessageTimeout=.*/MessageTimeout=5/" /etc/slurm/slurm.conf >slurm.conf
export SLURM_CONF=$PWD/slurm.conf
squeue
sbatch --wrap="srun hostname"
