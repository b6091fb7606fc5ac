"""Forecast the speeds of a freeway's sensors for the next hour, trained with DDP on CPU nodes with gloo.

    python train_traffic.py --epochs 2 --results results/alone
    srunbook simulate --nodes 2 -- python train_traffic.py --epochs 3 --results results/two_nodes
    sbatch ddp_2node_cpu.sbatch

You should see a line for each epoch, and a val_mae at the end that is smaller than that of both baselines.
srun starts one task for each rank; torchrun is not needed. Needs traffic_data.py beside it.
"""

import argparse
import fcntl
import hashlib
import io
import logging
import os
import signal
import sys
import zipfile
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from time import perf_counter, process_time

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group: imported later, it would keep the group alive
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile, record_function, schedule
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler
from traffic_data import STEPS, TrafficNet, cached_speeds, evaluate, last_values, losses, prepare_speeds, read_hdf5

METRICS = "epoch,train_loss,val_loss,val_mae,val_rmse,epoch_time_sec,throughput_samples_per_sec,"
METRICS += "data_load_time_sec,compute_time_sec,gpu_util_avg,cpu_util_avg"
TIMINGS = "rank,host,epoch,data_load_time_sec,compute_time_sec,all_reduce_time_sec,epoch_time_sec"


def say(line, stream=None):  # on stdout, and in the log of this rank, which main opens
    print(line, file=stream, flush=True)
    logging.info(line)


def join(timeout):
    """Join the other tasks, and wait `timeout` seconds at most for a lost one; return the device to compute on."""
    env = os.environ
    if "SLURM_JOB_ID" in env and "SLURM_STEP_ID" not in env:
        print("error: in a job, start this program with srun, which starts a task on each node", file=sys.stderr)
        sys.exit(2)
    # The job script cannot export these: in it, SLURM_PROCID and SLURM_LOCALID are 0.
    env["RANK"] = env.get("SLURM_PROCID", "0")
    env["LOCAL_RANK"] = env.get("SLURM_LOCALID", "0")
    env["WORLD_SIZE"] = env.get("SLURM_NTASKS", "1")
    env.setdefault("MASTER_ADDR", env.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"))
    env.setdefault("MASTER_PORT", str(25000 + int(env.get("SLURM_JOB_ID", "4500")) % 7000))
    if "OMP_NUM_THREADS" not in env:
        torch.set_num_threads(int(env.get("SLURM_CPUS_PER_TASK", "1")))
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines: all write to one log
    backend = env.get("BACKEND", "gloo")
    possible = "nccl" if backend == "nccl" and torch.cuda.is_available() else "gloo"
    dist.init_process_group(possible, timeout=timedelta(seconds=timeout))
    if backend != possible:
        fail(f"BACKEND is {backend!r}: give gloo, or nccl on nodes where PyTorch sees GPUs")
    if backend == "nccl":
        torch.cuda.set_device(int(env["LOCAL_RANK"]) % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")


def fail(problem):
    """End all ranks with status 2, and let rank 0 say why. All ranks call this: none is left waiting for another."""
    if dist.get_rank() == 0:
        say(f"error: {problem}", sys.stderr)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # srun terminates the rest when the first has failed
    dist.barrier()
    sys.exit(2)


def on_rank_0(option, function, *arguments):
    """Let rank 0 alone use the path that an option gives; return the result on all ranks, or end them all."""
    box = [None, None]
    if dist.get_rank() == 0:
        try:
            box[0] = function(*arguments)
        except ValueError as error:
            box[1] = str(error)
        except OSError as error:
            box[1] = f"cannot write to {option} {arguments[0]}: {error.strerror}"
    dist.broadcast_object_list(box, src=0)
    if box[1]:
        fail(box[1])
    return box[0]


def prepare(folder, resume):
    """Make the folder of the results; one that holds any is for --resume alone, and each for one job at a time."""
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


def save(folder, state):
    """Write the tables, then the checkpoint, which holds them too: killed in between, a resume writes all again."""
    checkpoint = io.BytesIO()
    torch.save(state, checkpoint)
    files = {f"{name}.csv": "".join(f"{row}\n" for row in state[name]).encode() for name in ("metrics", "timings")}
    for name, content in (files | {"checkpoint_latest.pth": checkpoint.getvalue()}).items():
        beside = folder / f".{name}.tmp"  # a job may be killed at any moment: write here, then move
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / name)


def note_and_average(ready, bucket):
    """Average a bucket of gradients as DDP does, and note when this rank had computed it: after the last it waits."""
    ready[0] = perf_counter()
    return allreduce_hook(None, bucket)


def train_epoch(ddp, optimizer, loader, steps, ready, profiler):
    """Train; return the mean loss of all ranks, and this rank's seconds of loading, computing and waiting."""
    scale = ddp.module.scale
    sums, spent = torch.zeros(2, dtype=torch.float64, device=scale.device), torch.zeros(3, dtype=torch.float64)
    batches, done = iter(loader), perf_counter()
    for _ in range(steps):
        before = done
        with record_function("data"):
            past, times, truth = (part.to(scale.device) for part in next(batches))
        loaded = perf_counter()
        with record_function("forward"):
            loss = losses(ddp(past, times), truth, scale)
            mean = loss.sum() / loss.numel()  # also of missing values: the same on all ranks, as DDP's mean needs it
        with record_function("backward"):
            optimizer.zero_grad()
            mean.backward()  # in here DDP averages the gradients over all ranks
        averaged = perf_counter()
        with record_function("optimizer"):
            optimizer.step()
        sums += torch.stack([loss.detach().sum(), (truth > 0).sum()]).double()
        done = perf_counter()
        spent += torch.tensor([loaded - before, ready[0] - loaded + done - averaged, averaged - ready[0]])
        if profiler:
            profiler.step()
    dist.all_reduce(sums)
    spent[2] += perf_counter() - done
    return (sums[0] / sums[1]).item(), *spent.tolist()


def main():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS)  # with a wrong option, each rank would print it
    job = os.environ.get("SLURM_JOB_ID")
    option = parser.add_argument
    option("--epochs", type=int, default=10)
    option("--batch-size", type=int, default=64, help="of all ranks together")
    option("--learning-rate", type=float, default=0.002)
    option("--hidden", type=int, default=64, help="width of the network")
    option("--days", type=int, default=35, help="of synthetic speeds")
    option("--data", type=Path, help="HDF5 file in the layout of METR-LA, in place of synthetic speeds")
    option("--data-dir", type=Path, default=Path("data"), help="where synthetic speeds are kept")
    option("--results", type=Path, default=f"results/ddp_cpu_{job or 'local'}", help="folder for all that it writes")
    option("--resume", action="store_true", help="continue from checkpoint_latest.pth if it exists")
    option("--max-steps", type=int, help="of an epoch")
    option("--profile", action="store_true", help="write a trace of ten steps for each rank")
    option("--double", action="store_true", help="compute in float64, to compare numbers of ranks")
    option("--timeout", type=float, default=600, help="seconds to wait for a lost rank")
    settings = parser.parse_args()

    device = join(settings.timeout)
    for name, value in vars(settings).items():
        if type(value) in (int, float) and not 0 < value < float("inf"):
            fail(f"--{name.replace('_', '-')} {value}: give more than 0")
    rank, world, backend = dist.get_rank(), dist.get_world_size(), dist.get_backend()
    say_once = say if rank == 0 else lambda _: None
    folder, epochs, batch = settings.results, settings.epochs, settings.batch_size
    on_rank_0("--results", prepare, folder, settings.resume)
    logging.basicConfig(filename=folder / f"rank_{rank}.log", format="%(message)s", level="INFO", force=True)
    host, hosts = os.environ.get("SLURMD_NODENAME") or os.uname().nodename, [None] * world
    dist.all_gather_object(hosts, host)
    place = f"host={host} local_rank={os.environ['LOCAL_RANK']} pid={os.getpid()} device={device} backend={backend}"
    job = f" job={job}" if job else ""
    say(f"rank {rank}/{world} start {place} framework=torch-{torch.__version__}{job} epochs={epochs}")
    say_once(f"DDP on {world} ranks on {len(set(hosts))} nodes, backend {backend}, rank 0 on {host}")

    torch.set_default_dtype(torch.float64 if settings.double else torch.float32)
    wanted = (read_hdf5, settings.data) if settings.data else (cached_speeds, settings.data_dir, settings.days)
    mph, times, source = on_rank_0("--data-dir", *wanted)
    train, validation, usual = prepare_speeds(mph, times)
    share = max(1, batch // world)
    if share * world > len(train):
        fail(f"--batch-size {batch}: {world} ranks would take {share} windows each, of only {len(train)}: give fewer")
    if batch % world:
        say_once(f"--batch-size {batch} does not divide by {world}: each rank takes {share}, together {share * world}")
    # To train, rank r of N takes windows r, r + N, r + 2N, ... of one shuffled list: together, the ranks have in each
    # step the batch of one process. To validate, each window counts once; a DistributedSampler would repeat some.
    sampler = DistributedSampler(train, drop_last=True)
    loader = DataLoader(train, None, sampler=BatchSampler(sampler, share, drop_last=True))
    val_loader = DataLoader(validation, None, sampler=BatchSampler(range(rank, len(validation), world), 256, False))
    steps = min(len(loader), settings.max_steps or len(loader))

    torch.manual_seed(0)  # the same first parameters on all ranks
    model = TrafficNet(usual, settings.hidden).to(device)
    ddp = DistributedDataParallel(model, forward_sync_buffers=False)  # buffers never change
    ddp.register_comm_hook(ready := [0.0], note_and_average)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    # DDP groups the gradients differently at its first step, and sums of floats depend on the grouping. One pass that
    # is thrown away makes the first step after a resume like any other: it has the same bits as without the break.
    ddp(*(part.to(device) for part in train[[0]][:2])).sum().backward()
    count = sum(part.numel() for part in model.parameters())
    say_once(f"speeds: {source}; {usual.shape[1]} sensors, {len(train)} windows to train on; {count} parameters")

    metrics, timings = [METRICS], [TIMINGS]
    if state := on_rank_0("--results", load, folder / "checkpoint_latest.pth", model, optimizer):
        metrics, timings = state["metrics"], state["timings"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        say_once(f"resuming after epoch {len(metrics) - 1}")
    first = len(metrics)
    baselines = {
        "last value": lambda past, times: last_values(past, model.usual[times[:, 0]])[:, None].expand(-1, STEPS, -1),
        "daily mean": lambda _, times: model.usual[times],
    }
    for name, forecast in baselines.items():
        _, mae, rmse = evaluate(forecast, val_loader, model.scale)
        say_once(f"baseline {name}  val_mae {mae:.2f}  val_rmse {rmse:.2f}")

    path = str(folder / f"trace_rank_{rank}.json")
    plan = schedule(wait=10, warmup=2, active=10, repeat=1)
    trace = profile(schedule=plan, on_trace_ready=lambda done: done.export_chrome_trace(path), acc_events=True)
    with trace if settings.profile else nullcontext() as profiler:
        for epoch in range(first, epochs + 1):
            sampler.set_epoch(epoch)  # without it, the same order in each epoch
            start, busy = perf_counter(), process_time()
            loss, *spent = train_epoch(ddp, optimizer, loader, steps, ready, profiler)
            rate = steps * share * world / (perf_counter() - start)
            val, mae, rmse = evaluate(model, val_loader, model.scale)
            wall = perf_counter() - start
            cpu = 100 * (process_time() - busy) / wall / torch.get_num_threads()

            ranks = [None] * world
            dist.all_gather_object(ranks, [*spent, wall, cpu])
            for number, (data, compute, wait, wall, _) in enumerate(ranks):
                timings.append(f"{number},{hosts[number]},{epoch},{data:f},{compute:f},{wait:f},{wall:f}")
            data, compute, _, wall, _ = map(max, zip(*ranks, strict=True))
            cpu = sum(row[-1] for row in ranks) / world
            metrics.append(f"{epoch},{loss:f},{val:f},{mae:f},{rmse:f},{wall:f},{rate:f},{data:f},{compute:f},,{cpu:f}")
            errors = f"val_loss {val:f}  val_mae {mae:.2f}  val_rmse {rmse:.2f}"
            say_once(f"epoch {epoch}/{epochs}  train_loss {loss:f}  {errors}")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            on_rank_0("--results", save, folder, state | {"metrics": metrics, "timings": timings})

    digest = hashlib.sha256(b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values()))
    ended = f"steps={steps * (len(metrics) - first)} loss={float(metrics[-1].split(',')[1]):.4f}"
    say(f"rank {rank}/{world} end {ended} params={digest.hexdigest()[:12]}")


if __name__ == "__main__":
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code
    except Exception:
        logging.info("This rank has failed:", exc_info=True)  # in its log, too
        raise
    if dist.is_initialized():  # the model is gone by now: with it here, a thread of gloo might abort the process
        dist.destroy_process_group()
    sys.exit(status)
