"""The job's number names the run, and Slurm keeps this number at a requeue.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python fixed.py
"""

import os

from lightning.pytorch.loggers import TensorBoardLogger


def train(first: int, end: int) -> None:
    job = os.environ["SLURM_JOB_ID"]
    logger = TensorBoardLogger("logs", name="train", version=job, purge_step=first)
    for step in range(first, end):
        logger.log_metrics({"loss": 1 / (1 + step)}, step)
    logger.save()
    print(f"steps {first} to {end - 1} are in {logger.log_dir}")


if __name__ == "__main__":
    train(0, 4)  # until the time limit
    train(2, 6)  # after the requeue, from the last checkpoint
