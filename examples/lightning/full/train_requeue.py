"""train.py for jobs that are longer than their time limit.

    python train_requeue.py --epochs 2
    srunbook simulate --ntasks-per-node 2 -- python train_requeue.py --epochs 2
    sbatch requeue.sbatch train_requeue.py

At a signal all ranks save after the same iteration, and rank 0 puts the job back into the queue.
The next start of the job continues with the next batch. Needs train.py beside it.
"""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

received = []  # signals; the handler does no more than note one, for it may come in the middle of anything
signal.signal(signal.SIGUSR1, lambda number, _: received.append(number))  # before the slow imports, or it ends them

import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, DistributedSampler
from train import SEED, CloudData, read_settings, run


class ResumableSampler(DistributedSampler):
    """The share of one rank, from any sample on."""

    skip = 0

    def __iter__(self):
        return itertools.islice(super().__iter__(), self.skip, None)


class ResumableLoader(DataLoader):
    """A loader whose position is part of a checkpoint.

    Lightning saves what `state_dict` returns. Without it, a resumed epoch begins again with its first batch:
    the first batches are trained on twice, and the last ones never.
    """

    made = resume_at = 0  # batches of this epoch

    def __iter__(self):
        self.made, self.resume_at = self.resume_at, 0
        self.sampler.skip = self.made * self.batch_size
        for batch in super().__iter__():
            self.made += 1
            yield batch

    def state_dict(self):
        return {"made": self.made}

    def load_state_dict(self, state):
        self.resume_at = state["made"]


class ResumableData(CloudData):
    """The same points, from a loader that knows its position."""

    def train_dataloader(self):
        rank, world = self.trainer.global_rank, self.trainer.world_size
        return ResumableLoader(self.train, sampler=ResumableSampler(self.train, world, rank, seed=SEED), **self.options)


class Requeue(Callback):
    """Stop at a signal: SIGUSR1 from --signal, or SIGTERM at a preemption."""

    def on_train_start(self, *_):
        signal.signal(signal.SIGTERM, lambda number, _: received.append(number))  # in place of Lightning's own

    def on_train_batch_end(self, trainer, *_):
        if trainer.is_last_batch:
            return  # the epoch ends first, with its validation
        # A signal reaches the ranks at different times: what any has received counts for all.
        number = torch.tensor(max(received, default=0), device=trainer.strategy.root_device)
        number = int(trainer.strategy.reduce(number, reduce_op="max"))
        if number:
            self.stop(trainer, signal.Signals(number))

    def stop(self, trainer, agreed):
        """Save, requeue and leave."""
        trainer.save_checkpoint(Path(trainer.checkpoint_callback.dirpath, "last.ckpt"))
        if trainer.is_global_zero:
            print(f"Stopping after iteration {trainer.global_step}: {agreed.name}")
            job = os.environ.get("SLURM_JOB_ID")
            if "SLURM_ARRAY_TASK_ID" in os.environ:  # this member alone, not the whole array
                job = "{SLURM_ARRAY_JOB_ID}_{SLURM_ARRAY_TASK_ID}".format_map(os.environ)
            if agreed == signal.SIGUSR1 and job and shutil.which("scontrol"):
                for number in (signal.SIGUSR1, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)  # a second one would end scontrol, which inherits this
                subprocess.run(["scontrol", "requeue", job], check=True)
            elif agreed == signal.SIGUSR1 and job:  # in a container without Slurm's commands
                print(f"saved; to continue, type on a login node: scontrol requeue {job}")
        for logger in trainer.loggers:
            logger.finalize("success")
        trainer.strategy.barrier()
        sys.exit(75)


def main():
    try:
        run(read_settings(), ResumableData, Requeue())
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
