#!/bin/bash
# Submits a file that does not exist.
sbatch training.sbatch
