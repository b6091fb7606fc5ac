"""Train a small network on one GPU, or on the CPU.

    python one_gpu.py

The trained model goes to model.pt.
"""

from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

EPOCHS = 5
BATCH_SIZE = 64


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    # Stand-in data: ten patterns under noise. Put your own dataset here.
    patterns = torch.randn(10, 1, 16, 16)
    labels = torch.randint(10, (2048,))
    images = patterns[labels] + 3 * torch.randn(2048, 1, 16, 16)
    dataset = TensorDataset(images, labels)
    sampler = RandomSampler(dataset, generator=torch.Generator())
    loader = DataLoader(dataset, BATCH_SIZE, sampler=sampler, drop_last=True)

    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(1024, 10)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    for epoch in range(EPOCHS):
        sampler.generator.manual_seed(epoch)  # a new order each epoch, the same in each run
        total = 0.0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.6f}", flush=True)

    torch.save(model.state_dict(), "model.tmp")
    Path("model.tmp").replace("model.pt")


if __name__ == "__main__":
    main()
