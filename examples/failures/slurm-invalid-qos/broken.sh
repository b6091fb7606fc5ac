#!/bin/bash
# Asks for a quality of service that this cluster does not have.
sbatch --qos=premium --wrap="srun hostname"
