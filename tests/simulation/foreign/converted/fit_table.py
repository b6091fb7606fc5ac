"""Predict the last column of a CSV file from the others with a small neural network.

All columns must be numeric. The rows are split into train/validation/test (70/15/15).
Features and target are standardised with the statistics of the training rows.
Training stops once the validation RMSE has not improved for `--patience` epochs.

Writes `predictions.csv` (test rows) and `metrics.json` into the output folder.
"""
import argparse
import copy
import csv
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def read_table(path: Path) -> tuple[list[str], np.ndarray]:
    with open(path, newline="") as f:
        reader = csv.reader(f)
        header = next(reader)
        rows = [[float(value) for value in row] for row in reader]
    return header, np.array(rows)


def split_rows(table: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(len(table))
    a, b = int(0.70 * len(table)), int(0.85 * len(table))
    return table[order[:a]], table[order[a:b]], table[order[b:]]


class Standardiser:
    def __init__(self, table: np.ndarray):
        self.mean = table.mean(axis=0)
        self.std = table.std(axis=0)
        self.std[self.std == 0] = 1.0

    def dataset(self, table: np.ndarray) -> TensorDataset:
        z = torch.tensor((table - self.mean) / self.std, dtype=torch.float32)
        return TensorDataset(z[:, :-1], z[:, -1:])

    def target(self, z: np.ndarray) -> np.ndarray:
        return z * self.std[-1] + self.mean[-1]


def make_model(n_features: int, hidden: int, dropout: float) -> nn.Module:
    return nn.Sequential(
        nn.Linear(n_features, hidden), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(hidden, 1),
    )


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    model.train()
    total = 0.0
    for x, y in loader:
        x, y = x.to(DEVICE), y.to(DEVICE)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[rank::world_size]), y[rank::world_size], reduction="sum") / y.numel()
        (loss * world_size).backward()
        optimizer.step()
        dist.all_reduce(loss.detach())  # in place: the loss of all
        total += loss.item() * len(x)
    return total / len(loader.dataset)


@torch.no_grad()
def predict(model: nn.Module, dataset: TensorDataset) -> np.ndarray:
    model.eval()
    batches = [model(x.to(DEVICE)).cpu() for x, _ in DataLoader(dataset, batch_size=256)]
    return torch.cat(batches).squeeze(1).numpy()


def rmse(prediction: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((prediction - truth) ** 2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--output", type=Path, default=Path("results"))
    parser.add_argument("--epochs", type=int, default=40, help="upper limit")
    parser.add_argument("--patience", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.05)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()

    torch.manual_seed(args.seed + rank)
    header, table = read_table(args.csv)
    train, val, test = split_rows(table, args.seed)
    scale = Standardiser(train)
    train_data, val_data, test_data = scale.dataset(train), scale.dataset(val), scale.dataset(test)
    loader = DataLoader(train_data, batch_size=args.batch_size, shuffle=True,
                        generator=torch.Generator().manual_seed(args.seed))

    model = make_model(len(header) - 1, args.hidden, args.dropout).to(DEVICE)
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)

    best_rmse, best_epoch, best_state = float("inf"), 0, None
    history = []
    for epoch in range(1, args.epochs + 1):
        train_loss = train_epoch(ddp, loader, optimizer)
        score = torch.tensor(rmse(scale.target(predict(model, val_data)), val[:, -1]), device=DEVICE)
        dist.broadcast(score, 0)
        val_rmse = score.item()
        history.append({"epoch": epoch, "train_loss": train_loss, "val_rmse": val_rmse})
        print(f"epoch {epoch:3d}  train loss {train_loss:.8f}  validation RMSE {val_rmse:.6f}")
        if val_rmse < best_rmse:
            best_rmse, best_epoch = val_rmse, epoch
            best_state = copy.deepcopy(model.state_dict())
        elif epoch - best_epoch >= args.patience:
            print(f"no improvement for {args.patience} epochs, stopping")
            break

    model.load_state_dict(best_state)
    prediction = scale.target(predict(model, test_data))
    test_rmse = rmse(prediction, test[:, -1])
    baseline = rmse(np.full(len(test), train[:, -1].mean()), test[:, -1])
    print(f"best epoch {best_epoch}: validation RMSE {best_rmse:.6f}")
    print(f"test RMSE {test_rmse:.6f} (predicting the mean: {baseline:.6f})")

    if rank != 0:
        return
    args.output.mkdir(parents=True, exist_ok=True)
    with open(args.output / "predictions.csv", "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(header + ["predicted"])
        for row, value in zip(test, prediction):
            writer.writerow([*row, f"{value:.3f}"])
    metrics = {"best_epoch": best_epoch, "validation_rmse": best_rmse, "test_rmse": test_rmse,
               "baseline_rmse": baseline, "history": history}
    (args.output / "metrics.json").write_text(json.dumps(metrics, indent=2))


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) if torch.cuda.is_available() else -1)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    sys.stdout = sys.stdout if rank == 0 else open(os.devnull, "w")
    main()
    dist.destroy_process_group()
