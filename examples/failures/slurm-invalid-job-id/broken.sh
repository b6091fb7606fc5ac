#!/bin/bash
# Asks for a job that has ended long ago.
srun --jobid=999999 --overlap hostname
