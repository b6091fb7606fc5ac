"""The samples of tar shards, read from the first byte to the last; `stateful.py` imports this."""

import tarfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info


def decode(sample):  # EDIT: what your files contain
    """Make tensors from the files of a sample, a dictionary such as {"f32": bytes, "cls": bytes}."""
    return torch.frombuffer(bytearray(sample["f32"]), dtype=torch.float32).view(1, 16, 16), int(sample["cls"])


class Shards(IterableDataset):
    """Gives each loader worker of each rank shards of its own, in a new order for each `epoch`."""

    def __init__(self, folder, rank, world_size):
        self.paths, self.rank, self.world_size = sorted(Path(folder).glob("*.tar")), rank, world_size
        self.epoch = self.shard = self.byte = 0  # the place: shards that are done, and bytes of the next one

    def state_dict(self):
        return {"epoch": self.epoch, "shard": self.shard, "byte": self.byte}

    def load_state_dict(self, state):
        vars(self).update(state)

    def __iter__(self):
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        readers = self.world_size * workers
        if not self.paths or len(self.paths) % readers:
            raise ValueError(f"{len(self.paths)} shards for {readers} loader workers of all ranks: pack a multiple")
        order = np.random.default_rng(self.epoch).permutation(len(self.paths))  # the same on all ranks
        own = [self.paths[shard] for shard in order[self.rank * workers + number :: readers]]
        while self.shard < len(own):
            with own[self.shard].open("rb", buffering=2**20) as file:
                file.seek(self.byte)
                with tarfile.open(fileobj=file, mode="r:") as tar:  # begins at this byte
                    sample, last = {}, None
                    for member in tar:
                        folder, _, name = member.name.rpartition("/")
                        name, _, suffix = name.partition(".")
                        if sample and (folder, name) != last:
                            self.byte = member.offset
                            yield decode(sample)
                            sample = {}
                        sample[suffix], last = tar.extractfile(member).read(), (folder, name)
            self.shard, self.byte = self.shard + 1, 0
            yield decode(sample)
        self.shard = 0
