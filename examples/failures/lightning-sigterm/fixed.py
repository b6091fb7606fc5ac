"""The same, with a callback that saves and ends with a status of its own.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

import os
import signal
import sys

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.demos.boring_classes import BoringModel


class Model(BoringModel):
    def on_train_batch_start(self, _, index):
        if index == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_train_batch_end(self, _outputs, _batch, index):
        print(f"batch {index} of 5 is done", flush=True)


class SaveAndStop(lightning.Callback):
    received = False

    def note(self, *_):
        self.received = True

    def on_train_start(self, *_):
        signal.signal(signal.SIGTERM, self.note)  # in place of Lightning's own

    def on_train_batch_end(self, trainer, *_):
        received = torch.tensor(self.received, dtype=torch.int, device=trainer.strategy.root_device)
        if trainer.strategy.reduce(received, reduce_op="max"):  # what any rank has received counts for all
            trainer.save_checkpoint("stopped.ckpt")
            if trainer.is_global_zero:
                sys.stdout.write(f"saved after step {trainer.global_step}\n")
                sys.stdout.flush()
            dist.barrier()
            os._exit(75)


def main() -> None:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=5,
        enable_checkpointing=False,
        callbacks=SaveAndStop(),
        **quiet,
    )
    trainer.fit(Model())
    print("finished", flush=True)


if __name__ == "__main__":
    main()
