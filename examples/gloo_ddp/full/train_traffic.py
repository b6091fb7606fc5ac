"""Forecasts the speeds of a freeway's sensors for the next hour, trained by DDP on CPU nodes with gloo.

    python train_traffic.py --epochs 2 --results results/alone
    srunbook simulate --nodes 2 -- python train_traffic.py --epochs 3 --results results/two_nodes
    sbatch ddp_2node_cpu.sbatch

You should now see a line for each epoch, and a val_mae at the end that is smaller than that of both baselines.
srun starts one task for each rank; there is no torchrun.
Needs traffic_data.py, task_ranks.py and result_files.py beside it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from result_files import METRICS, prepare_folder, save
from task_ranks import check_world, everybody, fingerprint, from_rank_0, host, join, leave, one_voice, open_log, say
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


# The data ------------------------------------------------------------------------


class Windows(Dataset):
    """Two hours from the speeds of all sensors: one to look at, one to forecast.

    A batch is cut out in one piece: its index is a list of starts.
    """

    def __init__(self, mph: torch.Tensor, times: torch.Tensor, first: int, last: int) -> None:
        self.mph, self.times, self.first = mph, times, first
        self.count = max(0, last - first - 2 * STEPS + 1)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, starts: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        at = self.first + torch.as_tensor(starts)[:, None] + torch.arange(2 * STEPS)
        speeds = self.mph[at]  # shape (batch, time, sensors)
        return speeds[:, :STEPS], self.times[at[:, STEPS:]], speeds[:, STEPS:]


class Share:
    """Batches of this rank's share of the windows, to validate: each window once.

    A DistributedSampler would repeat some windows to fill up, and they would count twice.
    """

    def __init__(self, count: int, size: int) -> None:
        self.mine, self.size = list(range(dist.get_rank(), count, dist.get_world_size())), size

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(0, len(self.mine), self.size):
            yield self.mine[start : start + self.size]


def make_loaders(speeds: Speeds, settings: argparse.Namespace) -> tuple[DataLoader, DataLoader]:
    """Batches to train and to validate with.

    To train: rank r takes windows r, r + N, r + 2N, ... of one shuffled list, so that
    all ranks together have at each step the batch that one process would have. Where
    it does not divide, each takes the nearest share.
    """
    world, batch = dist.get_world_size(), settings.batch_size
    cut = int(SHARE * len(speeds.mph))
    mph = torch.as_tensor(speeds.mph, dtype=torch.get_default_dtype())
    times = torch.as_tensor(speeds.weekend * SLOTS + speeds.slots)
    train, validation = Windows(mph, times, 0, cut), Windows(mph, times, cut, len(mph))
    with one_voice():
        if min(len(train) // world, len(validation)) < 1:
            raise ValueError(f"{len(mph)} times are too few for {world} ranks and windows of {2 * STEPS}: give more")
        if batch > len(train):
            raise ValueError(f"--batch-size {batch} is shared by {world} ranks, of {len(train)} windows: give fewer")
    share = max(1, round(batch / world))
    if batch % world and dist.get_rank() == 0:
        taken = f"each rank takes {share} windows, {share * world} together"
        say(f"--batch-size {batch} does not divide by {world}: {taken}")
    sampler = DistributedSampler(train, seed=SEED, drop_last=True)
    batches = BatchSampler(sampler, share, drop_last=True)
    return (
        DataLoader(train, sampler=batches, batch_size=None),  # None: a batch comes in one piece
        DataLoader(validation, sampler=Share(len(validation), 256), batch_size=None),
    )


def usual_speeds(speeds: Speeds) -> torch.Tensor:
    """Mean speed at each time of day, on weekdays and on weekends, shape (2 * SLOTS, sensors).

    From the training part alone, and where that has none, the sensor's mean.
    """
    cut = int(SHARE * len(speeds.mph))
    mph = torch.as_tensor(speeds.mph[:cut], dtype=torch.float64)
    times = torch.as_tensor((speeds.weekend * SLOTS + speeds.slots)[:cut])
    sums = torch.zeros(2 * SLOTS, mph.shape[1], dtype=torch.float64).index_add(0, times, mph)
    counts = torch.zeros_like(sums).index_add(0, times, (mph > 0).double())
    means = sums.sum(0) / counts.sum(0).clamp(min=1)
    return torch.where(counts > 0, sums / counts.clamp(min=1), means).to(torch.get_default_dtype())


# The model -----------------------------------------------------------------------


def last_values(past: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """The newest speed that each sensor gave, shape (batch, sensors); 0 is a missing one."""
    value = otherwise
    for speeds in past.unbind(1):
        value = torch.where(speeds > 0, speeds, value)
    return value


class TrafficNet(nn.Module):
    """Forecasts how speeds will differ from the last ones.

    Each sensor reads its own hour and what is usual in the next one. Then, twice, it hears from the sensors that
    matter to it; which these are is learnt, as in Graph WaveNet (Wu et al., IJCAI 2019).
    No dropout and no batch norm: with them, other numbers of ranks would give other results.
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
        """Speeds in mph, shape (batch, STEPS, sensors)."""
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
    """Loss of each value; a missing one has none."""
    return smooth_l1_loss(forecast / scale, truth / scale, beta=0.1, reduction="none") * (truth > 0)


# The training --------------------------------------------------------------------


@dataclass
class Clock:
    """Where the time of an epoch goes on this rank, in seconds."""

    spent: dict[str, float] = field(default_factory=dict)
    last: float = 0.0
    ready: float = 0.0

    def start(self) -> None:
        """Begins a new epoch."""
        self.spent = dict.fromkeys(("data_load", "compute", "all_reduce"), 0.0)
        self.last = time.perf_counter()

    def lap(self, name: str, until: float | None = None) -> None:
        """Counts the time since the last call for `name`."""
        now = until or time.perf_counter()
        self.spent[name] += now - self.last
        self.last = now


def stamp_and_reduce(clock, bucket):
    """Does what DDP does with a bucket of gradients, and notes when this rank had computed them.

    After the last bucket a rank only waits. So a slow rank is the one that waits least.
    """
    clock.ready = time.perf_counter()
    return allreduce_hook(None, bucket)


@dataclass
class Training:
    """What a training works with."""

    settings: argparse.Namespace
    device: torch.device
    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    loader: DataLoader
    val_loader: DataLoader
    clock: Clock


def train_epoch(training: Training, epoch: int, profiler: Any) -> tuple[list[float], int]:
    """Trains for one epoch; returns sum of losses, number of values and of windows over all ranks, and the steps."""
    device, model, clock = training.device, training.model, training.clock
    training.loader.sampler.sampler.set_epoch(epoch)  # without it, the same order in each epoch
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    batches = iter(training.loader)
    steps = min(len(training.loader), training.settings.max_steps or len(training.loader))
    for _ in range(steps):
        with record_function("data"):
            past, times, truth = (part.to(device) for part in next(batches))
        clock.lap("data_load")
        with record_function("forward"):
            loss = losses(model(past, times), truth, model.module.scale)
            # Divided by the number of all values, the missing ones too: it is the same on all ranks,
            # so that the mean over the ranks is the mean over the whole batch.
            mean = loss.sum() / loss.numel()
        with record_function("backward"):
            training.optimizer.zero_grad()
            mean.backward()  # in here DDP averages the gradients over all ranks
        clock.lap("compute", until=clock.ready)
        clock.lap("all_reduce")
        with record_function("optimizer"):
            training.optimizer.step()
        sums += torch.stack([loss.detach().sum(), (truth > 0).sum(), torch.tensor(len(truth), device=device)]).double()
        clock.lap("compute")
        if profiler:
            profiler.step()
    dist.all_reduce(sums)
    clock.lap("all_reduce")
    return sums.tolist(), steps


@torch.no_grad()
def evaluate(training: Training, forecast: Any) -> tuple[float, float, float]:
    """Mean loss, MAE and RMSE in mph of a forecast, over all ranks: sums first, then one division."""
    sums = torch.zeros(4, dtype=torch.float64, device=training.device)
    for batch in training.val_loader:
        past, times, truth = (part.to(training.device) for part in batch)
        guess = forecast(past, times)
        error = (guess - truth) * (truth > 0)
        loss = losses(guess, truth, training.model.module.scale)
        sums += torch.stack([loss.sum(), error.abs().sum(), (error**2).sum(), (truth > 0).sum()]).double()
    dist.all_reduce(sums)
    loss, absolute, square, count = sums.tolist()
    return loss / count, absolute / count, (square / count) ** 0.5


def baselines(training: Training) -> dict[str, Any]:
    """Forecasts that take no training."""
    usual = training.model.module.usual
    return {
        "last value": lambda past, times: last_values(past, usual[times[:, 0]])[:, None].expand(-1, STEPS, -1),
        "daily mean": lambda _, times: usual[times],
    }


def warm_up(training: Training) -> None:
    """Makes one backward pass and throws its gradients away.

    At its first step DDP groups the gradients otherwise than at all later ones, and
    sums of floats depend on the grouping. This makes the first step after a resume
    like any other: it computes, bit for bit, what it would have without the break.
    """
    past, times, _ = training.loader.dataset[[0]]
    training.model(past.to(training.device), times.to(training.device)).sum().backward()
    training.model.zero_grad()


def prepare(settings: argparse.Namespace, complaint: ValueError | None) -> tuple[Training, dict[str, Any]]:
    """Joins the ranks, prepares the folder, the data and the model, in this order."""
    device = join(settings.timeout)
    with one_voice():
        if complaint:
            raise complaint
    state = from_rank_0(lambda: prepare_folder(settings.results, settings.resume))
    with one_voice():
        open_log(settings.results)
    nodes = check_world()
    rank, world = dist.get_rank(), dist.get_world_size()
    job = f" job={os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
    say(
        f"rank {rank}/{world} start host={host()} local_rank={os.environ['LOCAL_RANK']} pid={os.getpid()} "
        f"device={device} backend={dist.get_backend()} framework=torch-{torch.__version__}{job} "
        f"epochs={settings.epochs}"
    )
    if rank == 0:
        say(f"DDP on {world} ranks on {nodes} nodes, backend {dist.get_backend()}, rank 0 on {host()}")

    torch.set_default_dtype(torch.float64 if settings.double else torch.float32)
    speeds = from_rank_0(
        lambda: read_hdf5(settings.data) if settings.data else cached_speeds(settings.data_dir, settings.days, SEED)
    )
    loader, val_loader = make_loaders(speeds, settings)
    torch.manual_seed(SEED)  # the same first parameters on all ranks
    model = TrafficNet(usual_speeds(speeds), settings.hidden).to(device)
    ddp = DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,  # none on a CPU
        forward_sync_buffers=False,  # they never change
    )
    clock = Clock()
    ddp.register_comm_hook(clock, stamp_and_reduce)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    training = Training(settings, device, ddp, optimizer, loader, val_loader, clock)
    warm_up(training)
    if dist.get_rank() == 0:
        count = sum(parameter.numel() for parameter in model.parameters())
        sensors, windows = speeds.mph.shape[1], len(loader.dataset)
        say(f"speeds: {speeds.source}; {sensors} sensors, {windows} windows to train on; {count} parameters")
    if state:
        resume(training, state)
    return training, state


def resume(training: Training, state: dict[str, Any]) -> None:
    """Goes on from a checkpoint."""
    with one_voice():
        try:
            training.model.module.load_state_dict(state["model"])
            training.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"the checkpoint in {training.settings.results} is of another model: {reason[:300]}"
            ) from None
    if dist.get_rank() == 0:
        say(f"resuming after epoch {len(state['metrics'])}")


def profiling(training: Training) -> Any:
    """Records ten steps after twelve others, and writes them as trace_rank_<R>.json."""
    if not training.settings.profile:
        return nullcontext()
    path = training.settings.results / f"trace_rank_{dist.get_rank()}.json"
    return profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=10, warmup=2, active=10, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        acc_events=True,
    )


def fit(training: Training, state: dict[str, Any]) -> None:
    """Trains for all epochs."""
    settings, clock = training.settings, training.clock
    rank, world = dist.get_rank(), dist.get_world_size()
    metrics, timings = state.get("metrics", []), state.get("timings", [])
    for name, forecast in baselines(training).items():
        _, mae, rmse = evaluate(training, forecast)
        if rank == 0:
            say(f"baseline {name}  val_mae {mae:.2f}  val_rmse {rmse:.2f}")
    steps = 0
    with profiling(training) as profiler:
        for epoch in range(len(metrics) + 1, settings.epochs + 1):
            clock.start()
            start, busy = time.perf_counter(), time.process_time()
            (loss, count, windows), made = train_epoch(training, epoch, profiler)
            steps += made
            trained = time.perf_counter() - start
            val_loss, mae, rmse = evaluate(training, training.model.module)
            wall = time.perf_counter() - start
            cpu = 100 * (time.process_time() - busy) / wall / torch.get_num_threads()
            spent = everybody((rank, host(), epoch, *clock.spent.values(), wall, trained, cpu))
            timings += [list(row[:7]) for row in spent]
            slowest = [max(row[column] for row in spent) for column in (3, 4, 6, 7)]
            utilisation = sum(row[8] for row in spent) / len(spent)
            row = [epoch, loss / count, val_loss, mae, rmse, slowest[2], windows / slowest[3], *slowest[:2]]
            metrics.append([*row, None, utilisation])
            if rank == 0:
                numbers = dict(zip(METRICS, metrics[-1], strict=True))
                parts = [f"{name} {numbers[name]:.6f}" for name in ("train_loss", "val_loss")]
                parts += [f"{name} {numbers[name]:.2f}" for name in ("val_mae", "val_rmse")]
                say(f"epoch {epoch}/{settings.epochs}  " + "  ".join(parts))
            with one_voice():
                if rank == 0:
                    model, optimizer = training.model.module.state_dict(), training.optimizer.state_dict()
                    saved = {"model": model, "optimizer": optimizer, "metrics": metrics, "timings": timings}
                    save(settings.results, saved)
    loss = metrics[-1][METRICS.index("train_loss")]
    say(f"rank {rank}/{world} end steps={steps} loss={loss:.4f} params={fingerprint(training.model.module)}")
    leave(0)


class Parser(argparse.ArgumentParser):
    """The settings of a training."""

    def __init__(self) -> None:
        super().__init__(description="Train a forecaster of road speeds by DDP.")
        job = os.environ.get("SLURM_JOB_ID", "local")
        self.add_argument("--epochs", type=int, default=10)
        self.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
        self.add_argument("--learning-rate", type=float, default=0.002)
        self.add_argument("--hidden", type=int, default=64, help="width of the network")
        self.add_argument("--days", type=int, default=35, help="of synthetic speeds")
        self.add_argument("--data", type=Path, help="HDF5 file in the form of METR-LA, in place of synthetic speeds")
        self.add_argument("--data-dir", type=Path, default=Path("data"), help="where synthetic speeds are kept")
        self.add_argument("--results", type=Path, default=Path("results", f"ddp_cpu_{job}"))
        self.add_argument("--resume", action="store_true", help="go on from checkpoint_latest.pth, where there is one")
        self.add_argument("--max-steps", type=int, help="of an epoch")
        self.add_argument("--profile", action="store_true", help="write a trace of ten steps for each rank")
        self.add_argument("--double", action="store_true", help="compute in float64, to compare numbers of ranks")
        self.add_argument("--timeout", type=float, default=600, help="seconds to wait for a rank")

    def error(self, message: str) -> None:
        """Leaves it to `one_voice` to print what is wrong with the command line."""
        raise ValueError(message)

    def settings(self) -> tuple[argparse.Namespace, ValueError | None]:
        """Reads the command line; returns the settings, and what is wrong with them."""
        settings = self.parse_args([])
        try:
            settings = self.parse_args()
            for name, value in vars(settings).items():
                if type(value) in (int, float) and not 0 < value < float("inf"):
                    raise ValueError(f"--{name.replace('_', '-')} {value}: give more than 0")
        except ValueError as error:
            return settings, error
        return settings, None


def main() -> None:
    fit(*prepare(*Parser().settings()))


if __name__ == "__main__":
    main()
