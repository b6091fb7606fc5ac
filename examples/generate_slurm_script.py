"""Write a job script for sbatch: the command `srunbook generate` as a program.

python generate_slurm_script.py --profile small --script train.py -- --epochs 3  # to look at it
python generate_slurm_script.py --list-profiles
python generate_slurm_script.py --profile medium --script train.py --output submit.sh
python generate_slurm_script.py --config slurm_configs/production.yaml --script train.py | sbatch
"""

from __future__ import annotations

from srunbook.cli.generate import command

if __name__ == "__main__":
    command(prog_name="generate_slurm_script.py")
