#!/bin/bash
# Submits two jobs with a quality of service that lets each user have one in the queue.
sbatch --qos=few --begin=now+1hour --wrap="srun hostname"
sbatch --qos=few --wrap="srun hostname"
status=$?
scancel --me --qos=few
exit $status
