"""Forecast the speeds of a freeway's sensors for the next hour, trained with DDP on CPU nodes with gloo.

    python train_traffic.py --epochs 2 --results results/alone
    srunbook simulate --nodes 2 -- python train_traffic.py --epochs 3 --results results/two_nodes
    sbatch ddp_2node_cpu.sbatch

You should see a line for each epoch, and a val_mae at the end that is smaller than that of both baselines.
srun starts one task for each rank; torchrun is not needed. Needs ranks.py and traffic_data.py beside it.
"""

import argparse
import fcntl
import hashlib
import io
import logging
import os
import zipfile
from contextlib import nullcontext
from pathlib import Path
from statistics import mean
from time import perf_counter, process_time

import torch
import torch.distributed as dist
from ranks import HOST, fail, gather, join, on_rank_0, say, say_once, write_whole
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile, record_function, schedule
from traffic_data import TrafficNet, baselines, evaluate, losses, make_loaders, prepare_speeds, read_speeds

assert torch.__version__ >= (2, 13), f"needs PyTorch 2.13 or newer, found {torch.__version__}"

METRICS = "epoch,train_loss,val_loss,val_mae,val_rmse,epoch_time_sec,throughput_samples_per_sec,"
METRICS += "data_load_time_sec,compute_time_sec,gpu_util_avg,cpu_util_avg"
TIMINGS = "rank,host,epoch,data_load_time_sec,compute_time_sec,all_reduce_time_sec,epoch_time_sec"


def parse_options():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS)  # with a wrong option, each rank would print it
    option, job = parser.add_argument, os.environ.get("SLURM_JOB_ID", "local")
    option("--epochs", type=int, default=10)
    option("--batch-size", type=int, default=64, help="of all ranks together")
    option("--learning-rate", type=float, default=0.002)
    option("--hidden", type=int, default=64, help="width of the network")
    option("--days", type=int, default=35, help="of synthetic speeds")
    option("--data", type=Path, help="HDF5 file in the layout of METR-LA, in place of synthetic speeds")
    option("--data-dir", type=Path, default=Path("data"), help="where synthetic speeds are kept")
    option("--results", type=Path, default=f"results/ddp_cpu_{job}", help="folder for everything it writes")
    option("--resume", action="store_true", help="continue from checkpoint_latest.pth if it exists")
    option("--max-steps", type=int, help="of an epoch")
    option("--profile", action="store_true", help="write a trace of ten steps for each rank")
    option("--double", action="store_true", help="compute in float64, to compare numbers of ranks")
    option("--timeout", type=float, default=600, help="seconds to wait for a lost rank")
    return parser.parse_args()


def prepare(folder, resume):
    """Make the folder of the results. Only --resume may use one that holds some, and only one job at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    held = min((path.name for path in folder.iterdir() if path.name != ".lock"), default=None)
    if held and not resume:
        raise ValueError(f"--results {folder} already holds {held}: give another folder, or --resume to continue there")
    lock = os.open(folder / ".lock", os.O_CREAT | os.O_WRONLY)  # stays open and locked until this process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"another job is training in {folder}: wait, or give another --results") from None
    except OSError:
        pass  # a file system without locks


def load(path, model, optimizer):
    """Return the checkpoint, if there is one, after a check that it is whole and fits."""
    if not path.exists():
        return None
    try:
        if damaged := zipfile.ZipFile(path).testzip():  # compares the checksums: torch.load does not
            raise ValueError(f"{damaged} has changed")
        state = torch.load(path, weights_only=True)  # without weights_only a file can run commands as you
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    except Exception as error:  # torch raises many kinds
        raise ValueError(f"{path} is damaged or of another model: delete it, and start again ({error!r})") from None
    return state


def save(folder, model, optimizer, tables):
    """Write the tables, then the checkpoint, which holds them too: killed in between, a resume writes all again."""
    for name, rows in tables.items():
        write_whole(folder / f"{name}.csv", "".join(f"{row}\n" for row in rows).encode())
    checkpoint = io.BytesIO()  # torch.save itself would not say that a disk is full
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), **tables}, checkpoint)
    write_whole(folder / "checkpoint_latest.pth", checkpoint.getvalue())


def note_and_average(ready, bucket):
    """Average a bucket of gradients as DDP does, and note when this rank had computed it: after the last it waits."""
    ready[0] = perf_counter()
    return allreduce_hook(None, bucket)


def train_epoch(ddp, optimizer, loader, steps, ready, profiler):
    """Train; return the mean loss of all ranks, and this rank's seconds of loading, computing and waiting."""
    scale = ddp.module.scale
    sums, loading, waiting = torch.zeros(2, dtype=torch.float64, device=scale.device), 0.0, 0.0
    batches, start = iter(loader), perf_counter()
    for _ in range(steps):
        asked = perf_counter()
        with record_function("data"):
            past, times, truth = (part.to(scale.device) for part in next(batches))
        loading += perf_counter() - asked
        with record_function("forward"):
            loss = losses(ddp(past, times), truth, scale)
            average = loss.sum() / loss.numel()  # missing values count, so that all ranks divide by the same number
        with record_function("backward"):
            optimizer.zero_grad()
            average.backward()  # in here, DDP averages the gradients over all ranks
        waiting += perf_counter() - ready[0]
        with record_function("optimizer"):
            optimizer.step()
        sums += torch.stack([loss.detach().sum(), (truth > 0).sum()]).double()
        if profiler:
            profiler.step()
    computing = perf_counter() - start - loading - waiting
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item(), loading, computing, waiting


def add_rows(tables, epoch, scores, windows, seconds):
    """Add an epoch to the tables: its losses and errors, and the seconds of each rank."""
    ranks = gather([HOST, *seconds])
    for rank, (host, loading, computing, waiting, total, _) in enumerate(ranks):
        tables["timings"].append(f"{rank},{host},{epoch},{loading:f},{computing:f},{waiting:f},{total:f}")
    rate = windows / sum(ranks[0][1:4])
    _, loading, computing, _, total, cpu = zip(*ranks, strict=True)
    row = ",".join(f"{value:f}" for value in [*scores, max(total), rate, max(loading), max(computing)])
    tables["metrics"].append(f"{epoch},{row},,{mean(cpu):f}")


def main():
    options = parse_options()
    device = join(options.timeout)
    for name, value in vars(options).items():
        if type(value) in (int, float) and not 0 < value < float("inf"):
            fail(f"--{name.replace('_', '-')} {value}: give more than 0")
    rank, world, backend = dist.get_rank(), dist.get_world_size(), dist.get_backend()
    folder, epochs, batch = options.results, options.epochs, options.batch_size
    on_rank_0(prepare, folder, options.resume)
    logging.basicConfig(filename=folder / f"rank_{rank}.log", format="%(message)s", level="INFO", force=True)
    job = f" job={os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
    place = f"host={HOST} local_rank={os.environ['LOCAL_RANK']} pid={os.getpid()} device={device} backend={backend}"
    say(f"rank {rank}/{world} start {place} framework=torch-{torch.__version__}{job} epochs={epochs}")
    nodes = len(set(gather(HOST)))
    say_once(f"DDP on {world} ranks on {nodes} nodes, backend {backend}, rank 0 on {HOST}")

    torch.set_default_dtype(torch.float64 if options.double else torch.float32)
    mph, times, source = on_rank_0(read_speeds, options.data, options.data_dir, options.days)
    train, validation, usual = prepare_speeds(mph, times)
    share = max(1, batch // world)
    if share * world > len(train):
        fail(f"--batch-size {batch}: {world} ranks would take {share} windows each, of only {len(train)}: give fewer")
    if batch % world:
        say_once(f"--batch-size {batch} does not divide by {world}: each rank takes {share}, together {share * world}")
    sampler, loader, val_loader = make_loaders(train, validation, share)
    steps = min(len(loader), options.max_steps or len(loader))

    torch.manual_seed(0)  # the same first parameters on all ranks
    model = TrafficNet(usual, options.hidden).to(device)
    ddp = DistributedDataParallel(model, forward_sync_buffers=False)  # buffers never change
    ddp.register_comm_hook(ready := [0.0], note_and_average)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    # DDP groups the gradients differently at its first step, and sums of floats depend on the grouping. One pass that
    # is thrown away makes the first step after a resume like any other: it has the same bits as without the break.
    ddp(*(part.to(device) for part in train[[0]][:2])).sum().backward()
    count = sum(part.numel() for part in model.parameters())
    say_once(f"speeds: {source}; {usual.shape[1]} sensors, {len(train)} windows to train on; {count} parameters")

    tables = {"metrics": [METRICS], "timings": [TIMINGS]}
    if state := on_rank_0(load, folder / "checkpoint_latest.pth", model, optimizer):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        tables = {name: state[name] for name in tables}
        say_once(f"resuming after epoch {len(tables['metrics']) - 1}")
    first = len(tables["metrics"])

    for name, forecast in baselines(model.usual).items():
        _, mae, rmse = evaluate(forecast, val_loader, model.scale)
        say_once(f"baseline {name}  val_mae {mae:.2f}  val_rmse {rmse:.2f}")

    path = str(folder / f"trace_rank_{rank}.json")
    plan = schedule(wait=10, warmup=2, active=10, repeat=1)
    trace = profile(schedule=plan, on_trace_ready=lambda done: done.export_chrome_trace(path), acc_events=True)
    with trace if options.profile else nullcontext() as profiler:
        for epoch in range(first, epochs + 1):
            start, cpu_start = perf_counter(), process_time()
            sampler.set_epoch(epoch)  # without it, the same order in each epoch
            loss, *seconds = train_epoch(ddp, optimizer, loader, steps, ready, profiler)
            val, mae, rmse = evaluate(model, val_loader, model.scale)
            total, cpu = perf_counter() - start, process_time() - cpu_start
            seconds += [total, 100 * cpu / total / torch.get_num_threads()]
            add_rows(tables, epoch, [loss, val, mae, rmse], steps * share * world, seconds)
            errors = f"val_loss {val:f}  val_mae {mae:.2f}  val_rmse {rmse:.2f}"
            say_once(f"epoch {epoch}/{epochs}  train_loss {loss:f}  {errors}")
            on_rank_0(save, folder, model, optimizer, tables)

    digest = hashlib.sha256(b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values()))
    loss, trained = float(tables["metrics"][-1].split(",")[1]), steps * (len(tables["metrics"]) - first)
    say(f"rank {rank}/{world} end steps={trained} loss={loss:.4f} params={digest.hexdigest()[:12]}")


if __name__ == "__main__":
    try:
        main()
    except Exception:
        logging.info("This rank has failed:", exc_info=True)  # in its log, too
        raise
    dist.destroy_process_group()  # main has freed the model: otherwise a thread of gloo might abort the process
