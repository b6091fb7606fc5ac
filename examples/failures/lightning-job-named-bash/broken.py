"""Lightning in a job whose name is `bash`.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python broken.py
"""

import os

import lightning

os.environ["SLURM_JOB_NAME"] = "bash"  # what `srun --pty bash` calls a job, and `#SBATCH --job-name=bash`

trainer = lightning.Trainer(accelerator="cpu", devices=1, logger=False)
task = f"task {os.environ['SLURM_PROCID']} of {os.environ['SLURM_NTASKS']}"
print(f"{task} is rank {trainer.global_rank} of {trainer.world_size}")
