"""The images to train on: three datasets, and the place to put your own.

Each reader takes `--data-dir` and returns images to train on, images to test on, and the
number of classes. An image is a tensor of bytes, 0 to 255, of shape (channels, height, width).
Only rank 0 calls a reader; all other processes get from it what it returned.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import interpolate
from torch.utils.data import Dataset, Subset, TensorDataset

TEST_SHARE = 0.2  # of the images, where a dataset has no test images of its own
FOLDER_SIZE = (32, 32)  # images from a folder are scaled to this height and width


def read_digits(_: Path) -> tuple[Dataset, Dataset, int]:
    """Return 1797 images of 8 x 8, which come with scikit-learn: no network, no files."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.images * 255 / 16).round().byte().unsqueeze(1)
    return *split(TensorDataset(images, torch.tensor(digits.target).long())), 10


def read_mnist(folder: Path) -> tuple[Dataset, Dataset, int]:
    """Read 70000 images of 28 x 28 from the four files of MNIST."""
    sets = []
    for name in ("train", "t10k"):
        images = torch.tensor(read_idx(folder, f"{name}-images-idx3-ubyte"))
        labels = torch.tensor(read_idx(folder, f"{name}-labels-idx1-ubyte"))
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise ValueError(
                f"the {name} files in {folder} do not belong together: "
                f"images of shape {tuple(images.shape)}, labels of shape {tuple(labels.shape)}"
            )
        sets.append(TensorDataset(images.unsqueeze(1), labels.long()))
    return sets[0], sets[1], 10


def read_idx(folder: Path, name: str) -> np.ndarray:
    """Read one file of MNIST, packed or not: big-endian numbers give its shape, then come bytes."""
    found = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if not found:
        raise ValueError(f"{folder} has no {name} and no {name}.gz: --data-dir says where they are")
    content = found[0].read_bytes()
    try:
        if found[0].suffix == ".gz":
            content = gzip.decompress(content)
        dimensions = content[3] if content[:3] == b"\0\0\x08" else 0
        shape = [int(size) for size in np.frombuffer(content, ">u4", dimensions, offset=4)]
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy()
    except (EOFError, ValueError, gzip.BadGzipFile, zlib.error):
        raise ValueError(f"{found[0]} is damaged, or no IDX file: download it again") from None


def read_folder(folder: Path) -> tuple[Dataset, Dataset, int]:
    """Read a folder of images for each class: `cats/1.png`, `cats/2.png`, `dogs/1.png`."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}: --data-dir says where the images are")
    paths, labels, classes = [], [], 0
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        images = [p for p in place.iterdir() if p.suffix.lower() in (".png", ".jpg", ".jpeg")]
        paths += sorted(images)
        labels += [classes] * len(images)
        classes += bool(images)
    if classes < 2:
        raise ValueError(f"{folder} needs two folders of images at least: cats/1.png, dogs/1.png")
    return *split(ImageFolder(paths, labels)), classes


class ImageFolder(Dataset):
    """Images of several sizes, each read when it is needed."""

    def __init__(self, paths: list[Path], labels: list[int]) -> None:
        self.paths, self.labels = paths, labels

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from matplotlib.image import imread

        pixels = np.atleast_3d(imread(self.paths[index]))
        if pixels.dtype != np.uint8:  # PNG comes as floats from 0 to 1
            pixels = pixels * 255
        pixels = np.broadcast_to(pixels[:, :, :3], (*pixels.shape[:2], 3))  # grey: three times
        image = torch.tensor(pixels, dtype=torch.float32).permute(2, 0, 1).unsqueeze(0)
        image = interpolate(image, FOLDER_SIZE, mode="bilinear", antialias=True)
        return image[0].round().byte(), self.labels[index]


def split(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Divide images into those to train on and those to test on, always in the same way."""
    order = np.random.default_rng(0).permutation(len(dataset)).tolist()
    tests = max(1, round(TEST_SHARE * len(order)))
    return Subset(dataset, order[tests:]), Subset(dataset, order[:tests])


DATASETS = {"digits": read_digits, "mnist": read_mnist, "folder": read_folder}
