"""A preemption, as Lightning answers it by itself.

srunbook simulate --ntasks-per-node 2 -- python broken.py
"""

import os
import signal

import lightning
from lightning.pytorch.demos.boring_classes import BoringModel


class Model(BoringModel):
    def on_train_batch_start(self, _, index):
        if index == 2:
            os.kill(os.getpid(), signal.SIGTERM)  # as scancel or a preemption sends it to each task

    def on_train_batch_end(self, _outputs, _batch, index):
        print(f"batch {index} of 5 is done", flush=True)


def main() -> None:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=5, enable_checkpointing=False, **quiet
    )
    trainer.fit(Model())
    print("finished", flush=True)


if __name__ == "__main__":
    main()
