"""Show each training as one run in TensorBoard.

pip install tensorboard
tensorboard --logdir runs
"""

from torch.utils.tensorboard import SummaryWriter


def open_run(folder, settings, history):
    """Log all epochs that are in the checkpoint; return the function that logs another one."""
    writer = SummaryWriter(folder / "tensorboard", purge_step=0)  # hide what earlier starts of the job logged

    def log(epoch, metrics):
        for name, value in metrics.items():
            writer.add_scalar(name, value, epoch)
        writer.flush()  # the job may be killed at any time

    writer.add_text("settings", str(settings))
    for epoch, metrics in enumerate(history):
        log(epoch, metrics)
    return log
