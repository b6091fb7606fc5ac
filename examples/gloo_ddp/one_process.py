"""Train a small network to forecast the next speed of a road sensor, in one process.

python one_process.py
"""

from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

EPOCHS = 5
BATCH_SIZE = 64


def main():
    torch.manual_seed(0)

    # Stand-in data: a daily wave under noise, every five minutes. Put your own dataset here.
    time = torch.arange(2048 + 12)
    speeds = torch.sin(time * 2 * torch.pi / 288) + 0.1 * torch.randn(len(time))
    hours = speeds.unfold(0, 13, 1)  # 2048 windows: an hour to look at, and the speed after it
    dataset = TensorDataset(hours[:, :12], hours[:, 12:])
    sampler = RandomSampler(dataset, generator=torch.Generator())
    loader = DataLoader(dataset, BATCH_SIZE, sampler=sampler, drop_last=True)

    model = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)

    for epoch in range(EPOCHS):
        sampler.generator.manual_seed(epoch)  # a new order each epoch, the same in each run
        total = torch.zeros(())
        for x, y in loader:
            loss = mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(loader):.6f}", flush=True)

    torch.save(model.state_dict(), "model.tmp")
    Path("model.tmp").replace("model.pt")


if __name__ == "__main__":
    main()
