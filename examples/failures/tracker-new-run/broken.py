"""A training that is requeued once, and logs to a new run each time.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python broken.py
"""

from lightning.pytorch.loggers import TensorBoardLogger


def train(first: int, end: int) -> None:
    logger = TensorBoardLogger("logs", name="train")
    for step in range(first, end):
        logger.log_metrics({"loss": 1 / (1 + step)}, step)
    logger.save()
    print(f"steps {first} to {end - 1} are in {logger.log_dir}")


if __name__ == "__main__":
    train(0, 4)  # until the time limit
    train(2, 6)  # after the requeue, from the last checkpoint
