"""Show each training as one run in Weights & Biases, also from nodes without internet.

pip install wandb
export WANDB_MODE=offline  # in the job script, if the nodes have no internet
for run in runs/*/wandb/latest-run; do wandb sync --include-synced "$run"; done  # on a machine with internet
"""

import uuid

import wandb


def open_run(folder, settings, history):
    """Log all epochs that are in the checkpoint; return the function that logs another one."""
    kept = folder / "tracker-id"
    if not kept.exists():
        kept.write_text(uuid.uuid4().hex)
    # Without resume, this start replaces what the earlier ones logged
    run = wandb.init(project="my-sweep", name=f"row {folder.name}", id=kept.read_text(), config=settings, dir=folder)

    def log(epoch, metrics):
        run.log(metrics, step=epoch, commit=True)

    for epoch, metrics in enumerate(history):
        log(epoch, metrics)
    return log
