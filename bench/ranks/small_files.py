"""Read an epoch, or after a resume the rest of one, in one of the ways of bench/small_files.py."""

import os
import pickle
import sys
from itertools import islice
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "runs_that_last"))

WAY, FOLDER, RESUME, TOTAL, BATCH = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "rest", *map(int, sys.argv[4:])
RANK, RANKS = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
STATE = Path(f"state-{RANK}")
HALF = TOTAL // RANKS // BATCH // 2  # batches


def with_torch() -> int:
    """Read with PyTorch; return the number of batches."""
    import torch
    from shards import Shards
    from torch.utils.data import DataLoader, Dataset, DistributedSampler
    from torchdata.stateful_dataloader import StatefulDataLoader

    class Files(Dataset):
        def __len__(self) -> int:
            return TOTAL

        def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
            path = FOLDER / f"{number:06}.f32"
            return torch.from_numpy(np.fromfile(path, np.float32)), int(path.with_suffix(".cls").read_text())

    if "forgetful" in WAY:
        del Shards.state_dict, Shards.load_state_dict
    single = WAY.startswith("files")
    dataset = Files() if single else Shards(FOLDER, RANK, RANKS)
    kind = StatefulDataLoader if "stateful" in WAY else DataLoader
    sampler = DistributedSampler(dataset, RANKS, RANK) if single else None
    loader = kind(dataset, BATCH, sampler=sampler, num_workers=2, drop_last=True)
    if RESUME and "stateful" in WAY:
        loader.load_state_dict(pickle.loads(STATE.read_bytes()))
    batches = islice(loader, HALF, None) if RESUME and "islice" in WAY else loader
    read = 0
    for _ in batches:
        read += 1
        if read == HALF and not RESUME and "stateful" in WAY:
            STATE.write_bytes(pickle.dumps(loader.state_dict()))
    return read


def with_grain() -> int:
    """Read with grain; return the number of batches."""
    import grain
    from grain_resume import Shards

    dataset = grain.MapDataset.source(Shards(FOLDER)).seed(0).shuffle()
    data = iter(dataset[RANK::RANKS].to_iter_dataset().batch(BATCH, drop_remainder=True))
    if RESUME:
        data.set_state(pickle.loads(STATE.read_bytes()))
    read = 0
    for _ in data:
        read += 1
        if read == HALF and not RESUME:
            STATE.write_bytes(pickle.dumps(data.get_state()))
    return read


print("read", with_grain() if WAY == "grain" else with_torch())
