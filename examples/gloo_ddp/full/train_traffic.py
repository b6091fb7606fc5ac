"""Forecast the speeds of a freeway's sensors for the next hour, trained with DDP on CPU nodes with gloo.

    python train_traffic.py --epochs 2 --results results/alone
    srunbook simulate --nodes 2 -- python train_traffic.py --epochs 3 --results results/two_nodes
    sbatch ddp_2node_cpu.sbatch

You should now see a line for each epoch, and a val_mae at the end that is smaller than that of both baselines.
srun starts one task for each rank; torchrun is not needed.
Needs traffic_data.py, task_ranks.py and result_files.py beside it.
"""

from __future__ import annotations

import argparse
import math
import os
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter, process_time

import torch
import torch.distributed as dist
from result_files import prepare_folder, save
from task_ranks import announce, conclude, everybody, from_rank_0, host, join, one_voice, refuse, run, say_once
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.functional import smooth_l1_loss
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler
from traffic_data import SLOTS, Speeds, cached_speeds, read_hdf5

SEED = 0
STEPS = 12  # five minutes each: an hour to look at, and an hour to forecast
SHARE = 0.8  # of the time is for training, the rest for validation


class Windows(Dataset):
    """Two hours of all sensors' speeds, one to look at and one to forecast; its index is a whole batch of starts."""

    def __init__(self, mph: torch.Tensor, times: torch.Tensor) -> None:
        self.mph, self.times = mph, times

    def __len__(self) -> int:
        return max(0, len(self.mph) - 2 * STEPS + 1)

    def __getitem__(self, starts: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        at = torch.as_tensor(starts)[:, None] + torch.arange(2 * STEPS)
        speeds = self.mph[at]  # shape (batch, time, sensors)
        return speeds[:, :STEPS], self.times[at[:, STEPS:]], speeds[:, STEPS:]


def make_loaders(speeds: Speeds, batch_size: int) -> tuple[DataLoader, DataLoader]:
    """Return the batches of this rank to train and to validate with.

    To train: rank r takes windows r, r + N, r + 2N, ... of one shuffled list, so that
    all ranks together have at each step the batch that one process would have.
    To validate: each window once. A DistributedSampler would repeat some to fill up.
    """
    rank, world, cut = dist.get_rank(), dist.get_world_size(), int(SHARE * len(speeds.mph))
    mph = torch.as_tensor(speeds.mph, dtype=torch.get_default_dtype())
    times = torch.as_tensor(speeds.weekend * SLOTS + speeds.slots)
    train, validation = Windows(mph[:cut], times[:cut]), Windows(mph[cut:], times[cut:])
    share = max(1, round(batch_size / world))
    with one_voice():
        if min(len(train) // world, len(validation)) < 1:
            raise ValueError(f"{len(mph)} times are too few for {world} ranks and windows of {2 * STEPS}: give more")
        if share * world > len(train):
            taken = f"{world} ranks would take {share} windows each, of only {len(train)}"
            raise ValueError(f"--batch-size {batch_size}: {taken}: give fewer")
    if batch_size % world:
        taken = f"each rank takes {share} windows, {share * world} together"
        say_once(f"--batch-size {batch_size} does not divide by {world}: {taken}")
    batches = BatchSampler(DistributedSampler(train, seed=SEED, drop_last=True), share, drop_last=True)
    mine = BatchSampler(range(rank, len(validation), world), 256, drop_last=False)
    # None: the dataset returns whole batches
    return DataLoader(train, None, sampler=batches), DataLoader(validation, None, sampler=mine)


def usual_speeds(speeds: Speeds) -> torch.Tensor:
    """Return the mean speeds of the training part by time of day, weekdays first, shape (2 * SLOTS, sensors)."""
    cut = int(SHARE * len(speeds.mph))
    mph = torch.as_tensor(speeds.mph[:cut], dtype=torch.float64)
    times = torch.as_tensor((speeds.weekend * SLOTS + speeds.slots)[:cut])
    sums = torch.zeros(2 * SLOTS, mph.shape[1], dtype=torch.float64).index_add(0, times, mph)
    counts = torch.zeros_like(sums).index_add(0, times, (mph > 0).double())
    means = sums.sum(0) / counts.sum(0).clamp(min=1)  # of each sensor, for a time that the data lack
    return torch.where(counts > 0, sums / counts.clamp(min=1), means).to(torch.get_default_dtype())


def last_values(past: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """Return the newest speed of each sensor, shape (batch, sensors); a speed of 0 is missing."""
    value = otherwise
    for speeds in past.unbind(1):
        value = torch.where(speeds > 0, speeds, value)
    return value


class TrafficNet(nn.Module):
    """Forecasts how far speeds will move away from the last ones.

    Each sensor reads its own hour and the usual speeds of the next one. Then, twice, it hears from the sensors that
    matter to it; the model learns which these are, as in Graph WaveNet (Wu et al., IJCAI 2019).
    With dropout or batch norm, the results would depend on the number of ranks.
    """

    def __init__(self, usual: torch.Tensor, hidden: int) -> None:
        super().__init__()
        sensors = usual.shape[1]
        self.register_buffer("usual", usual)
        self.register_buffer("scale", usual.std())
        self.read = nn.Linear(3 * STEPS, hidden)
        self.place = nn.Parameter(0.1 * torch.randn(sensors, hidden))
        self.sender = nn.Parameter(torch.randn(sensors, 8))
        self.receiver = nn.Parameter(torch.randn(sensors, 8))
        self.mix = nn.ModuleList(nn.Linear(3 * hidden, hidden) for _ in range(2))
        self.write = nn.Linear(hidden, STEPS)

    def forward(self, past: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Return speeds in mph, shape (batch, STEPS, sensors)."""
        usual = self.usual[times]
        last = last_values(past, usual[:, 0])[:, None]
        there = (past > 0).to(past.dtype)
        seen = torch.cat([(past - last) / self.scale * there, there, (usual - last) / self.scale], 1)
        state = torch.relu(self.read(seen.transpose(1, 2)) + self.place)  # (batch, sensors, hidden)
        weights = self.receiver @ self.sender.T
        heard, told = torch.softmax(weights, 1), torch.softmax(weights.T, 1)
        for mix in self.mix:
            state = state + torch.relu(mix(torch.cat([state, heard @ state, told @ state], 2)))
        return last + self.scale * self.write(state).transpose(1, 2)


def losses(forecast: torch.Tensor, truth: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the loss of each value, 0 for a missing one."""
    return smooth_l1_loss(forecast / scale, truth / scale, beta=0.1, reduction="none") * (truth > 0)


def note_and_average(ready, bucket):
    """Average a bucket of gradients as DDP does, and note when this rank had computed it: after the last it waits."""
    ready[0] = perf_counter()
    return allreduce_hook(None, bucket)


def train_epoch(ddp, optimizer, loader, steps, ready, profiler) -> tuple[list[float], list[float]]:
    """Train; return losses, values and windows of all ranks, and this rank's seconds of loading, computing, waiting."""
    scale = ddp.module.scale
    sums = torch.zeros(3, dtype=torch.float64, device=scale.device)
    spent = torch.zeros(3, dtype=torch.float64)
    batches, done = iter(loader), perf_counter()
    for _ in range(steps):
        before = done
        with record_function("data"):
            past, times, truth = (part.to(scale.device) for part in next(batches))
        loaded = perf_counter()
        with record_function("forward"):
            loss = losses(ddp(past, times), truth, scale)
            # Divided by the number of all values, missing ones included: it is the same on all ranks,
            # so the mean over the ranks is the mean over the whole batch.
            mean = loss.sum() / loss.numel()
        with record_function("backward"):
            optimizer.zero_grad()
            mean.backward()  # in here DDP averages the gradients over all ranks
        averaged = perf_counter()
        with record_function("optimizer"):
            optimizer.step()
        sums += torch.stack([loss.detach().sum(), (truth > 0).sum(), torch.ones_like(truth[:, 0, 0]).sum()]).double()
        done = perf_counter()
        waited = averaged - ready[0]
        spent += torch.tensor([loaded - before, done - loaded - waited, waited])
        if profiler:
            profiler.step()
    dist.all_reduce(sums)
    spent[2] += perf_counter() - done
    return sums.tolist(), spent.tolist()


@torch.no_grad()
def evaluate(forecast, loader: DataLoader, scale: torch.Tensor) -> tuple[float, float, float]:
    """Return mean loss, MAE and RMSE in mph of a forecast, over all ranks: sums first, then one division."""
    sums = torch.zeros(4, dtype=torch.float64, device=scale.device)
    for batch in loader:
        past, times, truth = (part.to(scale.device) for part in batch)
        guess = forecast(past, times)
        error = (guess - truth) * (truth > 0)
        loss = losses(guess, truth, scale)
        sums += torch.stack([loss.sum(), error.abs().sum(), (error**2).sum(), (truth > 0).sum()]).double()
    dist.all_reduce(sums)
    loss, absolute, square, count = sums.tolist()
    return loss / count, absolute / count, (square / count) ** 0.5


def profiling(path: Path):
    """Record ten steps after twelve others, and write them as a trace."""
    return profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=10, warmup=2, active=10, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        acc_events=True,
    )


def read_settings() -> argparse.Namespace:
    """Return the options; if one is wrong, end all ranks with one error line."""
    parser = argparse.ArgumentParser(description="Train a forecaster of road speeds with DDP.")
    parser.error = refuse
    results = Path("results", f"ddp_cpu_{os.environ.get('SLURM_JOB_ID', 'local')}")
    option = parser.add_argument
    option("--epochs", type=int, default=10)
    option("--batch-size", type=int, default=64, help="of all ranks together")
    option("--learning-rate", type=float, default=0.002)
    option("--hidden", type=int, default=64, help="width of the network")
    option("--days", type=int, default=35, help="of synthetic speeds")
    option("--data", type=Path, help="HDF5 file in the layout of METR-LA, in place of synthetic speeds")
    option("--data-dir", type=Path, default=Path("data"), help="where synthetic speeds are kept")
    option("--results", type=Path, default=results, help="folder for everything that the training writes")
    option("--resume", action="store_true", help="continue from checkpoint_latest.pth if it exists")
    option("--max-steps", type=int, help="of an epoch")
    option("--profile", action="store_true", help="write a trace of ten steps for each rank")
    option("--double", action="store_true", help="compute in float64, to compare numbers of ranks")
    option("--timeout", type=float, default=600, help="seconds to wait for a lost rank")
    settings = parser.parse_args()
    for name, value in vars(settings).items():
        if type(value) in (int, float) and not 0 < value < math.inf:
            refuse(f"--{name.replace('_', '-')} {value}: give more than 0")
    return settings


def main() -> None:
    settings = read_settings()
    device = join(settings.timeout)
    rank, world = dist.get_rank(), dist.get_world_size()
    state = from_rank_0(lambda: prepare_folder(settings.results, settings.resume))
    announce(device, settings.results, settings.epochs)

    torch.set_default_dtype(torch.float64 if settings.double else torch.float32)
    speeds = from_rank_0(
        lambda: read_hdf5(settings.data) if settings.data else cached_speeds(settings.data_dir, settings.days, SEED)
    )
    loader, val_loader = make_loaders(speeds, settings.batch_size)
    steps = min(len(loader), settings.max_steps or len(loader))

    torch.manual_seed(SEED)  # the same first parameters on all ranks
    usual = usual_speeds(speeds)
    model = TrafficNet(usual, settings.hidden).to(device)
    ddp = DistributedDataParallel(model, forward_sync_buffers=False)  # buffers never change
    ready = [0.0]
    ddp.register_comm_hook(ready, note_and_average)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    # DDP groups the gradients differently at its first step, and sums of floats depend on the grouping. One pass that
    # is thrown away makes the first step after a resume like any other: it has the same bits as without the break.
    past, times, _ = loader.dataset[[0]]
    ddp(past.to(device), times.to(device)).sum().backward()
    optimizer.zero_grad()
    sensors, windows, count = usual.shape[1], len(loader.dataset), sum(part.numel() for part in model.parameters())
    say_once(f"speeds: {speeds.source}; {sensors} sensors, {windows} windows to train on; {count} parameters")

    metrics, timings = [], []
    if state is not None:
        with one_voice():
            try:
                metrics, timings = state["metrics"], state["timings"]
                model.load_state_dict(state["model"])
                optimizer.load_state_dict(state["optimizer"])
            except (RuntimeError, ValueError, KeyError) as error:
                reason = " ".join(str(error).split())[:300]
                raise ValueError(f"the checkpoint in {settings.results} is of another model: {reason}") from None
        say_once(f"resuming after epoch {len(metrics)}")
    resumed = len(metrics)

    baselines = {
        "last value": lambda past, times: last_values(past, model.usual[times[:, 0]])[:, None].expand(-1, STEPS, -1),
        "daily mean": lambda _, times: model.usual[times],
    }
    for name, forecast in baselines.items():
        _, mae, rmse = evaluate(forecast, val_loader, model.scale)
        say_once(f"baseline {name}  val_mae {mae:.2f}  val_rmse {rmse:.2f}")

    trace = settings.results / f"trace_rank_{rank}.json"
    with profiling(trace) if settings.profile else nullcontext() as profiler:
        for epoch in range(resumed + 1, settings.epochs + 1):
            loader.sampler.sampler.set_epoch(epoch)  # without it, the same order in each epoch
            start, busy = perf_counter(), process_time()
            (total, count, windows), spent = train_epoch(ddp, optimizer, loader, steps, ready, profiler)
            loss, trained = total / count, perf_counter() - start
            val_loss, mae, rmse = evaluate(model, val_loader, model.scale)
            wall = perf_counter() - start
            cpu = 100 * (process_time() - busy) / wall / torch.get_num_threads()

            ranks = everybody([rank, host(), epoch, *spent, wall, trained, cpu])
            timings.extend(row[:7] for row in ranks)
            data, compute, _, wall, trained, _ = (max(times) for times in zip(*(row[3:] for row in ranks), strict=True))
            cpu = sum(row[-1] for row in ranks) / world
            metrics.append([epoch, loss, val_loss, mae, rmse, wall, windows / trained, data, compute, None, cpu])
            numbers = f"train_loss {loss:.6f}  val_loss {val_loss:.6f}  val_mae {mae:.2f}  val_rmse {rmse:.2f}"
            say_once(f"epoch {epoch}/{settings.epochs}  {numbers}")
            from_rank_0(lambda: save(settings.results, model, optimizer, metrics, timings))
    conclude(model, steps=steps * (len(metrics) - resumed), loss=f"{metrics[-1][1]:.4f}")


if __name__ == "__main__":
    run(main)
