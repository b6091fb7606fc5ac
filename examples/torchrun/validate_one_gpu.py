"""Train with batch norm, warm-up, validation and early stopping on one GPU, or on the CPU.

    python validate_one_gpu.py

The model with the lowest validation loss goes to best.pt.
"""

from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import LambdaLR

STEPS = 400
BATCH_SIZE = 64
WARM_UP = 40  # steps
CHECK_EVERY = 20  # steps
PATIENCE = 2  # checks without a better loss


def evaluate(model, images, labels, device):
    """Return the mean loss over all images; the last batch may be smaller than the others."""
    model.eval()
    total = torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in zip(images.split(100), labels.split(100), strict=True):
            total += cross_entropy(model(x.to(device)), y.to(device), reduction="sum")
    model.train()
    return total.item() / len(images)


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    # Stand-in data: ten patterns under noise. Put your own dataset here.
    patterns = torch.randn(10, 1, 16, 16)
    labels = torch.randint(10, (2048,))
    images = patterns[labels] + 3 * torch.randn(2048, 1, 16, 16)
    images, held_out = images.split([1500, 548])
    labels, held_out_labels = labels.split([1500, 548])

    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.GELU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 10),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARM_UP))

    best, waited = float("inf"), 0
    for step in range(1, STEPS + 1):
        chosen = torch.randint(len(images), (BATCH_SIZE,))
        x, y = images[chosen].to(device), labels[chosen].to(device)
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % CHECK_EVERY == 0:
            score = evaluate(model, held_out, held_out_labels, device)
            print(f"step {step}: loss {score:.6f}", flush=True)
            waited += 1
            if score < best:
                best, waited = score, 0
                torch.save(model.state_dict(), "best.tmp")
                Path("best.tmp").replace("best.pt")
            if waited == PATIENCE:
                break


if __name__ == "__main__":
    main()
