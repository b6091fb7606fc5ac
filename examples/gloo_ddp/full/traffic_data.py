"""Speeds on a freeway every five minutes, made by a traffic model or read from a file, and a network to forecast them.

The synthetic speeds come from the cell transmission model (C. F. Daganzo, Transportation Research Part B 28, 1994):
it cuts the road into cells, and moves from each into the next as much as the first can send and the second can take.
Jams grow against the traffic, as real ones do.
"""

import io

import numpy as np
import torch
import torch.distributed as dist
from ranks import write_whole
from torch import nn
from torch.nn.functional import smooth_l1_loss
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

SLOTS = 24 * 12  # of five minutes, in a day
STEPS = 12  # of five minutes: an hour to look at, and an hour to forecast
SHARE = 0.8  # of the time is for training, the rest for validation

# The road: 48 cells of a quarter of a mile with three lanes, and two lanes near the end
LANES = np.where(np.arange(48) >= 40, 2.0, 3.0)
CELL_MILES = 0.25
TICK_HOURS = 10 / 3600  # in which nobody crosses more than one cell
FREE_MPH, WAVE_MPH = 65.0, 13.0
CAPACITY = 2000.0 * LANES  # vehicles per hour
JAM = CAPACITY / FREE_MPH + CAPACITY / WAVE_MPH  # vehicles per mile that leave no room
ON = [0, 8, 20, 32]  # cells where vehicles come in: at the beginning of the road, and on three ramps
PEAK = np.array([5800.0, 700.0, 800.0, 600.0])  # vehicles per hour
MERGE = np.array([1.0, 0.3, 0.3, 0.3])  # share of a cell's room that they may take
STAY = np.ones(48)  # share of the vehicles that pass an exit
STAY[[14, 26, 38]] = 1 - np.array([0.12, 0.14, 0.3])


def make_speeds(days, seed=0):
    """Simulate traffic, and read it with sensors that err a little and are sometimes silent; shape (times, sensors)."""
    rng = np.random.default_rng(seed)
    hour = np.arange(0, 24, TICK_HOURS)[:, None]

    def hump(center, width):
        return np.exp(-0.5 * ((hour - center) / width) ** 2)

    # Demand as a share of the peak, shape (ticks, days): two rush hours, or one long afternoon
    shift = rng.normal(0, 0.15, days)
    weekday = 0.12 + 0.42 * hump(13, 4.5) + 0.62 * hump(7.8 + shift, 1.1) + 0.62 * hump(17.2 + shift, 1.5)
    demand = np.where(np.arange(days) % 7 >= 5, 0.12 + 0.62 * hump(14.5 + shift, 3.5), weekday)
    wobble = np.cumsum(rng.normal(0, 0.04, (25, days)), axis=0)  # from hour to hour
    wobble -= wobble.mean(axis=0)
    between = np.column_stack([np.interp(hour[:, 0], range(25), day) for day in wobble.T])
    demand = demand * rng.normal(1, 0.03, days) * (1 + between).clip(0.5)

    left = np.ones((*demand.shape, len(LANES)))  # share of each cell's capacity that incidents leave
    for day in range(days):
        for _ in range(rng.poisson(2.0)):
            start = rng.uniform(6, 20)
            end = start + min(10 + rng.exponential(25), 90) / 60
            left[int(start / TICK_HOURS) : int(end / TICK_HOURS), day, rng.integers(4, 48)] *= rng.uniform(0.3, 0.6)

    density = demand[0][:, None] * PEAK[0] / FREE_MPH * np.ones(len(LANES))  # vehicles per mile, shape (days, cells)
    queue = np.zeros((days, len(ON)))  # vehicles that wait to come in
    speeds = np.zeros((days, SLOTS, len(LANES)))
    ticks = len(demand) // SLOTS
    for tick, share in enumerate(demand):
        capacity = CAPACITY * left[tick]
        sending = np.minimum(FREE_MPH * density, capacity)
        room = np.minimum(WAVE_MPH * (JAM - density), capacity)
        queue += share[:, None] * PEAK * TICK_HOURS
        merging = np.minimum(queue / TICK_HOURS, MERGE * room[:, ON])
        queue -= merging * TICK_HOURS
        entering = np.zeros((days, len(LANES)))
        entering[:, ON] = merging
        onward = np.column_stack((np.minimum(sending[:, :-1], room[:, 1:] - entering[:, 1:]), sending[:, -1]))
        leaving = np.minimum(onward / STAY, sending)  # onward, and by the exits
        entering[:, 1:] += (leaving * STAY)[:, :-1]
        speeds[:, tick // ticks] += np.clip(leaving / np.maximum(density, 1e-9), 3, FREE_MPH) / ticks
        density = np.clip(density + TICK_HOURS / CELL_MILES * (entering - leaving), 0, JAM)

    speeds = speeds[:, :, 1::2].reshape(days * SLOTS, -1)  # a sensor in each second cell
    times, sensors = speeds.shape
    speeds = (speeds * rng.normal(1, 0.02, sensors) + rng.normal(0, 1.2, speeds.shape)).clip(1, 80)
    speeds[rng.random(speeds.shape) < 0.01] = 0
    for _ in range(days):  # about once a day a sensor is silent for a few hours
        start, sensor = rng.integers(times), rng.integers(sensors)
        speeds[start : start + rng.integers(6, 60), sensor] = 0
    return speeds.astype(np.float32)


def times_of_week(start, count):
    """Return the slot of the day of each time, and SLOTS more on weekends; `start` is in minutes since 1970."""
    minutes = start + 5 * np.arange(count)
    weekend = (minutes // (24 * 60) + 3) % 7 >= 5  # 1970 began on a Thursday
    return weekend * SLOTS + minutes % (24 * 60) // 5


def cached_speeds(folder, days, seed=0):
    """Return what `make_speeds` makes, from a file if an earlier run has written it, times of the week, and a name."""
    path = folder / f"synthetic-{days}-days-seed-{seed}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        np.save(content, make_speeds(days, seed))
        write_whole(path, content.getvalue())  # another job may read it now
    return np.load(path), times_of_week(4 * 24 * 60, days * SLOTS), f"synthetic, {days} days, seed {seed}"


def read_hdf5(path):
    """Return speeds, times of the week and a name from a file in the layout of METR-LA and PEMS-BAY.

    pandas writes it: a group with the speeds in `block0_values`, shape (times, sensors), and the times in `axis1`, in
    nanoseconds since 1970. A speed of 0 or NaN is missing, and so are all speeds at a time that is left out.
    """
    import h5py

    try:
        with h5py.File(path) as file:
            tables = [group for group in file.values() if isinstance(group, h5py.Group) and "block0_values" in group]
            if len(tables) != 1:
                raise ValueError(f"--data {path} holds {len(tables)} tables of speeds and should hold one")
            mph, times = tables[0]["block0_values"][()], tables[0]["axis1"][()]
    except (OSError, KeyError) as error:
        raise ValueError(f"cannot read --data {path} as HDF5: {error}") from None
    if mph.ndim != 2 or not 10 * STEPS <= len(mph) == len(times):
        found = f"block0_values has the shape {mph.shape}, and axis1 has {len(times)} times"
        raise ValueError(f"--data {path}: {found}; give both the same number of rows, {10 * STEPS} or more")
    places, off = np.divmod(times - times[0], 300 * 10**9)
    if np.any(off) or np.any(np.diff(places) <= 0) or places[-1] > 4 * len(times):
        raise ValueError(f"--data {path}: axis1 should hold rising times in nanoseconds, 5 minutes apart")
    speeds = np.zeros((places[-1] + 1, mph.shape[1]), np.float32)
    speeds[places] = np.nan_to_num(mph, posinf=0, neginf=0)
    return speeds, times_of_week(times[0] // (60 * 10**9), len(speeds)), f"file {path.name}"


def read_speeds(path, folder, days):
    """Return speeds, times of the week and a name: of a file if there is a path, otherwise synthetic ones."""
    return read_hdf5(path) if path else cached_speeds(folder, days)


def prepare_speeds(mph, times):
    """Return two sets of windows, to train and to validate with, and the usual speeds, shape (2 * SLOTS, sensors).

    A window has past speeds, times of the week to forecast, and the speeds then; its index may be a whole batch.
    """
    mph, times = torch.as_tensor(mph, dtype=torch.get_default_dtype()), torch.as_tensor(times)
    cut = int(SHARE * len(mph))
    sums = torch.zeros(2 * SLOTS, mph.shape[1], dtype=torch.float64).index_add(0, times[:cut], mph[:cut].double())
    counts = torch.zeros_like(sums).index_add(0, times[:cut], (mph[:cut] > 0).double())  # a speed of 0 is missing
    means = sums.sum(0) / counts.sum(0).clamp(min=1)  # of each sensor, for a time that the data lack
    usual = torch.where(counts > 0, sums / counts.clamp(min=1), means).to(mph.dtype)
    hours = mph.unfold(0, 2 * STEPS, 1).transpose(1, 2)  # a view, shape (windows, time, sensors)
    windows = hours[:, :STEPS], times[STEPS:].unfold(0, STEPS, 1), hours[:, STEPS:]
    train = TensorDataset(*(part[: cut - 2 * STEPS + 1] for part in windows))  # none reaches beyond the cut
    return train, TensorDataset(*(part[cut:] for part in windows)), usual


def make_loaders(train, validation, share):
    """Return the sampler and the loader of this rank's windows to train on, and the loader of those to validate with.

    To train, rank r of N takes windows r, r + N, r + 2N, ... of one shuffled list: together, the ranks have in each
    step the batch of one process. To validate, each window counts once; a DistributedSampler would repeat some.
    """
    sampler = DistributedSampler(train, drop_last=True)
    loader = DataLoader(train, None, sampler=BatchSampler(sampler, share, drop_last=True))
    rest = range(dist.get_rank(), len(validation), dist.get_world_size())
    return sampler, loader, DataLoader(validation, None, sampler=BatchSampler(rest, 256, drop_last=False))


def last_values(past, otherwise):
    """Return the newest speed of each sensor that is not missing, shape (batch, sensors)."""
    value = otherwise
    for speeds in past.unbind(1):
        value = torch.where(speeds > 0, speeds, value)
    return value


def baselines(usual):
    """Return two forecasts that need no training: each sensor keeps its speed, or has the mean of that time of day."""
    return {
        "last value": lambda past, times: last_values(past, usual[times[:, 0]])[:, None].expand(-1, STEPS, -1),
        "daily mean": lambda _, times: usual[times],
    }


class TrafficNet(nn.Module):
    """Forecasts how far speeds will move away from the last ones. With dropout, results would depend on the ranks.

    Each sensor reads its own hour and the usual speeds of the next one. Then, twice, it hears from the sensors that
    matter to it; the model learns which these are, as in Graph WaveNet (Wu et al., IJCAI 2019).
    """

    def __init__(self, usual, hidden):
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

    def forward(self, past, times):
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


def losses(forecast, truth, scale):
    """Return the loss of each value, 0 for a missing one."""
    return smooth_l1_loss(forecast / scale, truth / scale, beta=0.1, reduction="none") * (truth > 0)


@torch.no_grad()
def evaluate(forecast, loader, scale):
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
