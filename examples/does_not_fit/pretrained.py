"""Read the weights of a Hugging Face folder into the parts of each rank, and write them back. For any model."""

import shutil
from pathlib import Path

import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def weights(model):
    """Return the weights by name, a tied one once, as in Hugging Face's files."""
    return {name: weight.detach() for name, weight in model.named_parameters()}


def load(model, folder):
    """Read this rank's parts."""
    dcp.load(weights(model), storage_reader=dcp.HuggingFaceStorageReader(folder))


def save(model, folder, target):
    """Write the model to a folder, with the config.json of the one that it came from."""
    beside = Path(f"{target}.tmp")
    if dist.get_rank() == 0:
        shutil.rmtree(beside, ignore_errors=True)  # of a run that was killed
    dist.barrier()
    writer = dcp.HuggingFaceStorageWriter(str(beside), save_distributed=True, enable_consolidation=True)
    dcp.save(weights(model), storage_writer=writer)
    if dist.get_rank() == 0:
        shutil.copy(Path(folder, "config.json"), beside)
        shutil.rmtree(beside / "sharded")
        shutil.rmtree(target, ignore_errors=True)
        beside.rename(target)  # whole or not at all
