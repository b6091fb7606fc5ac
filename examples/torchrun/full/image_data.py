"""The images to train on: three datasets, the place to put your own, and the batches of each process.

Each reader takes `--data-dir` and returns images to train on, images to test on, and the
number of classes. An image is a tensor of bytes, 0 to 255, of shape (channels, height, width).
Only rank 0 calls a reader; all other processes get from it what it returned.
"""

import gzip
import sys
import zlib

import numpy as np
import torch
import torch.distributed as dist
from processes import fail, on_rank_0, say_once
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, TensorDataset

TEST_SHARE = 0.2  # of the images, where a dataset has no test images of its own
FOLDER_SIZE = (32, 32)  # images from a folder are scaled to this height and width


def read_digits(_):
    """Return 1797 images of 8 x 8, which come with scikit-learn: no network, no files."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.images * 255 / 16).round().byte().unsqueeze(1)
    return *split(TensorDataset(images, torch.tensor(digits.target).long())), 10


def read_mnist(folder):
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


def read_idx(folder, name):
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


def read_folder(folder):
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

    def __init__(self, paths, labels):
        self.paths, self.labels = paths, labels

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        from matplotlib.image import imread

        pixels = np.atleast_3d(imread(self.paths[index]))
        if pixels.dtype != np.uint8:  # PNG comes as floats from 0 to 1
            pixels = pixels * 255
        pixels = np.broadcast_to(pixels[:, :, :3], (*pixels.shape[:2], 3))  # grey: three times
        image = torch.tensor(pixels, dtype=torch.float32).permute(2, 0, 1).unsqueeze(0)
        image = interpolate(image, FOLDER_SIZE, mode="bilinear", antialias=True)
        return image[0].round().byte(), self.labels[index]


def split(dataset):
    """Divide images into those to train on and those to test on, always in the same way."""
    order = np.random.default_rng(0).permutation(len(dataset)).tolist()
    tests = max(1, round(TEST_SHARE * len(order)))
    return Subset(dataset, order[tests:]), Subset(dataset, order[:tests])


DATASETS = {"digits": read_digits, "mnist": read_mnist, "folder": read_folder}


def load_data(settings):
    """Return the batches to train on and to test on, and what a model must know: channels, size and classes."""
    images, test_images, classes = on_rank_0(DATASETS[settings.dataset], settings.data_dir)
    world, batch_size = dist.get_world_size(), settings.batch_size
    share = max(1, batch_size // world)  # of a batch, for each process: the largest equal share
    if world > len(images):
        fail(f"{world} processes for {len(images)} images to train on: start fewer")
    if share * world > len(images):
        fail(f"--batch-size {batch_size} is more than the {len(images)} images to train on: give fewer")
    if share * world != batch_size:
        say_once(f"--batch-size {batch_size}: each of {world} processes takes {share} images, {share * world} a step")
    loader = get_dataloader(images, share, settings.num_workers, train=True)
    test_loader = get_dataloader(test_images, share, settings.num_workers, train=False)
    channels, size, _ = images[0][0].shape
    return loader, test_loader, (channels, size, classes)


def get_dataloader(dataset, share, num_workers, train):
    """Return the batches of this process's share of a dataset.

    To train: rank r takes images r, r + N, r + 2N, ... of one shuffled list, so that
    all ranks together have at each step the batch that one process would have.
    To test: each image once. A DistributedSampler would repeat some to fill up.
    """
    mine = range(dist.get_rank(), len(dataset), dist.get_world_size())
    return DataLoader(
        dataset,
        batch_size=share,
        sampler=DistributedSampler(dataset, drop_last=True) if train else mine,
        drop_last=train,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        pin_memory=torch.cuda.is_available(),  # lets copies to a GPU overlap computing
    )


def batches(loader, device):
    """Yield the batches of a loader on the device, their bytes as numbers from 0 to 1; count them on a terminal."""
    for done, (images, labels) in enumerate(loader, 1):
        yield images.to(device, non_blocking=True) / 255, labels.to(device, non_blocking=True)
        if dist.get_rank() == 0 and sys.stderr.isatty():
            print(f"\r{done}/{len(loader)}", end="\n" if done == len(loader) else "", file=sys.stderr, flush=True)
