#!/bin/bash
# Writes a variable into a directive: Slurm reads these lines, not the shell.
export LIMIT=00:10:00
sbatch <<"END"
#!/bin/bash
#SBATCH --time=$LIMIT
srun hostname
END
