"""Pack a folder of small files into tar shards, once.

    python pack.py

Files with the same name up to the first dot are one sample, as in WebDataset: cat17.jpg and cat17.cls.
"""

import json
import tarfile
from itertools import groupby
from pathlib import Path

import numpy as np

FOLDER = Path("samples")  # EDIT: your files, also in folders below
SHARDS = 16  # EDIT: a multiple of all loader workers of all ranks; a few hundred MB each

if not FOLDER.exists():  # stand-in data: ten patterns under noise
    FOLDER.mkdir()
    rng = np.random.default_rng(0)
    patterns = rng.normal(size=(10, 1, 16, 16))
    for number, label in enumerate(rng.integers(10, size=2048)):
        image = patterns[label] + 3 * rng.normal(size=(1, 16, 16))
        image.astype(np.float32).tofile(FOLDER / f"{number:06}.f32")
        (FOLDER / f"{number:06}.cls").write_text(str(label))


def key(name):
    return name.parent / name.name.partition(".")[0]


names = sorted(path.relative_to(FOLDER) for path in FOLDER.rglob("*") if path.is_file())
samples = [list(group) for _, group in groupby(sorted(names, key=key), key)]
order = np.random.default_rng(0).permutation(len(samples))  # once and for all: shards are read from end to end
order = np.resize(order, -(-len(samples) // SHARDS) * SHARDS)  # a few samples twice: no shard is shorter

Path("shards").mkdir(exist_ok=True)
for number in range(SHARDS):
    shard = Path(f"shards/train-{number:06}.tar")
    with tarfile.open(shard.with_suffix(".tmp"), "w", format=tarfile.GNU_FORMAT) as tar:
        for sample in order[number::SHARDS]:
            for name in samples[sample]:
                tar.add(FOLDER / name, str(name))
    with tarfile.open(shard.with_suffix(".tmp")) as tar:  # where each file begins, for grain_resume.py
        index = {member.name: (member.offset_data, member.size) for member in tar}
    shard.with_suffix(".json").write_text(json.dumps(index))
    shard.with_suffix(".tmp").replace(shard)
print(f"{len(names)} files, {len(samples)} samples -> {SHARDS} shards with {len(order) // SHARDS} samples each")
