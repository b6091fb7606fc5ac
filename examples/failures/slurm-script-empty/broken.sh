#!/bin/bash
# Submits an empty file, as a full disk or an editor that crashed leaves it.
: >empty.sbatch
sbatch empty.sbatch
