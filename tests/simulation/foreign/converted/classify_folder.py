"""Train a small CNN on a folder of images, one subfolder per class.

    python classify_folder.py data/shapes --epochs 20 --lr 0.05
"""
import argparse
import os
import random
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from batch_norm import BatchNorm


def parse_args():
    parser = argparse.ArgumentParser(description='image classification')
    parser.add_argument('data', help='root folder, one subfolder per class')
    parser.add_argument('--epochs', type=int, default=4)
    parser.add_argument('-b', '--batch-size', type=int, default=32)
    parser.add_argument('--lr', type=float, default=0.05)
    parser.add_argument('--img-size', type=int, default=16)
    parser.add_argument('--val-fraction', type=float, default=0.2)
    parser.add_argument('-j', '--workers', type=int, default=0)
    parser.add_argument('--print-freq', type=int, default=5)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--out', default='checkpoints', help='where to put the best model')
    return parser.parse_args()


class ImageFolder(Dataset):
    def __init__(self, samples, img_size, train=False):
        self.samples = samples
        self.img_size = img_size
        self.train = train

    def __len__(self):
        return len(self.samples)

    def augment(self, img):
        if random.random() < 0.5:
            img = img.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        size = self.img_size
        canvas = Image.new('RGB', (size + 4, size + 4))
        canvas.paste(img, (2, 2))  # pad by 2, then crop at random
        x, y = random.randint(0, 4), random.randint(0, 4)
        return canvas.crop((x, y, x + size, y + size))

    def __getitem__(self, idx):
        path, label = self.samples[idx]
        img = Image.open(path).convert('RGB').resize((self.img_size, self.img_size))
        if self.train:
            img = self.augment(img)
        x = torch.from_numpy(np.array(img, dtype=np.float32) / 255.0)
        return (x.permute(2, 0, 1) - 0.5) / 0.5, label


def find_samples(root):
    classes = sorted(d for d in os.listdir(root) if os.path.isdir(os.path.join(root, d)))
    samples = []
    for label, name in enumerate(classes):
        for fname in sorted(os.listdir(os.path.join(root, name))):
            if fname.lower().endswith(('.png', '.jpg', '.jpeg')):
                samples.append((os.path.join(root, name, fname), label))
    return samples, classes


def conv_block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        (nn.SyncBatchNorm if torch.cuda.is_available() else BatchNorm)(cout), nn.ReLU(inplace=True), nn.MaxPool2d(2))


class SmallCNN(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(conv_block(3, 16), conv_block(16, 32), conv_block(32, 64))
        self.fc = nn.Linear(64, num_classes)

    def forward(self, x):
        return self.fc(self.features(x).mean(dim=(2, 3)))


class AverageMeter:
    def __init__(self):
        self.sum = 0.0
        self.count = 0

    def update(self, val, n):
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / self.count


def train(loader, model, criterion, optimizer, epoch, device, args):
    losses = AverageMeter()
    model.train()
    for i, (images, target) in enumerate(loader):
        images, target = images.to(device), target.to(device)
        output, labels = model(images[rank::world_size]), target[rank::world_size]
        loss = nn.functional.cross_entropy(output, labels, reduction='sum') / len(target)
        optimizer.zero_grad()
        (loss * world_size).backward()
        optimizer.step()
        dist.all_reduce(loss.detach())  # in place: the loss of all
        losses.update(loss.item(), images.size(0))
        if i % args.print_freq == 0:
            print(f'Epoch [{epoch}][{i}/{len(loader)}]  loss {loss.item():.6f} ({losses.avg:.6f})')
    return losses.avg


@torch.no_grad()
def validate(loader, model, criterion, device):
    losses, top1 = AverageMeter(), AverageMeter()
    model.eval()
    for images, target in loader:
        images, target = images.to(device), target.to(device)
        output = model(images)
        losses.update(criterion(output, target).item(), images.size(0))
        top1.update((output.argmax(1) == target).float().mean().item() * 100, images.size(0))
    return losses.avg, top1.avg


def main():
    args = parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = True
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

    samples, classes = find_samples(args.data)
    random.shuffle(samples)
    n_val = int(len(samples) * args.val_fraction)
    val_set = ImageFolder(samples[:n_val], args.img_size)
    train_set = ImageFolder(samples[n_val:], args.img_size, train=True)
    print(f'{len(train_set)} train / {len(val_set)} val images, classes: {classes}, device: {device}')
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
    val_loader = DataLoader(val_set, batch_size=args.batch_size, num_workers=args.workers)

    model = SmallCNN(len(classes)).to(device)
    ddp = nn.parallel.DistributedDataParallel(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    os.makedirs(args.out, exist_ok=True)
    best_acc = -1.0
    for epoch in range(args.epochs):
        train_loss = train(train_loader, ddp, criterion, optimizer, epoch, device, args)
        val_loss, acc = validate(val_loader, model, criterion, device)
        scheduler.step()
        print(f' * epoch {epoch}  train loss {train_loss:.6f}  val loss {val_loss:.6f}  acc@1 {acc:.3f}')
        if rank == 0 and acc > best_acc:
            best_acc = acc
            torch.save({'epoch': epoch, 'state_dict': model.state_dict(), 'classes': classes, 'best_acc': best_acc},
                       os.path.join(args.out, 'model_best.pth'))
    print(f'best acc@1 {best_acc:.3f}')


if __name__ == '__main__':
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) if torch.cuda.is_available() else -1)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} backend={dist.get_backend()}", flush=True)
    sys.stdout = sys.stdout if rank == 0 else open(os.devnull, "w")
    main()
    dist.destroy_process_group()
