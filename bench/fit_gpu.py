"""What DDP, FSDP, recomputation and offloading hold on one GPU, and how long a step takes there.

python bench/fit_gpu.py          # writes bench/results/fit_gpu.json

The model is that of *When it does not fit*, made large, on one GPU: FSDP has nothing to divide, so what is measured is
what one rank holds. Each way has a process of its own. Needs an NVIDIA GPU with 40 GB.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from helpers.program import example, write
from measurements import Configuration
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

RESULT = Path(__file__).resolve().parent / "results" / "fit_gpu.json"
SIZES = {"WIDTH": 2048, "HEADS": 16, "LAYERS": 16, "CONTEXT": 512}
BATCH = 16
STEPS, WARM_UP = 8, 3
WAYS = ("DDP", "FSDP", "FSDP, recomputing", "FSDP, offloading", "FSDP, recomputing and offloading")
GB = 1e9
PEAK = {"DDP": 67e12, "FSDP": 989e12}
"""FLOP/s of an H200 in float32, in which DDP computes here, and in bfloat16: docs/performance/is-it-good.md."""


def rates(way: str, parameters: int, step_ms: list[float]) -> dict[str, list[float]]:
    """Return tokens/s, TFLOP/s and, in percent, MFU: 6 operations for a parameter and token, and those of attention."""
    operations = 6 * parameters + 12 * SIZES["LAYERS"] * SIZES["WIDTH"] * SIZES["CONTEXT"]
    tokens = [BATCH * SIZES["CONTEXT"] / one * 1e3 for one in step_ms]
    peak = PEAK[way.partition(",")[0]]
    return {
        "rate_tokensps": [round(rate, 1) for rate in tokens],
        "speed_TFLOPps": [round(rate * operations / 1e12, 2) for rate in tokens],
        "MFU_percent": [round(100 * rate * operations / peak, 2) for rate in tokens],
    }


def prepared(way: str) -> tuple[Any, int]:
    """Return the model on the GPU, and the number of its parameters."""
    module = example("does_not_fit/less_memory.py" if "recomputing" in way else "does_not_fit/ddp.py")
    vars(module).update(SIZES)
    torch.manual_seed(0)
    model = module.gpt()
    count = sum(parameter.numel() for parameter in model.parameters())
    if way == "DDP":
        return DistributedDataParallel(model.cuda()), count
    options: dict[str, Any] = {"offload_policy": CPUOffloadPolicy()} if "offloading" in way else {}
    policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    model.to("cpu" if options else "cuda")
    for layer in model:
        if isinstance(layer, module.Block):
            fully_shard(layer, mp_policy=policy, **options)
    fully_shard(model, **options)
    return model, count


def measure(way: str) -> dict[str, Any]:
    """Train some steps; return what they held and took."""
    dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1)
    torch.cuda.set_device(0)
    model, count = prepared(way)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(10, (STEPS, BATCH, SIZES["CONTEXT"] + 1), device="cuda")
    seconds = []
    held = 0
    for step in range(STEPS):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = cross_entropy(model(tokens[step, :, :-1]).flatten(0, 1), tokens[step, :, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        del loss
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        held = torch.cuda.memory_allocated()  # parameters, gradients and optimizer
    return {
        "parameters": count,
        "held_GB": held / GB,
        "peak_GB": torch.cuda.max_memory_allocated() / GB,
        "step_ms": [1e3 * one for one in seconds[WARM_UP:]],
    }


def main() -> None:
    """Measure each way in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--way", choices=WAYS, help="only print what this one takes, as JSON")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this torch sees no NVIDIA GPU")
    if options.way:
        print(json.dumps(measure(options.way)), flush=True)
        os._exit(0)  # in one step: threads of the transport may still hold tensors
    configurations = []
    for way in WAYS:
        command = [sys.executable, __file__, f"--way={way}"]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(run.stdout.splitlines()[-1])
        samples = {
            "held_GB": [round(found["held_GB"], 3)],
            "formula_GB": [round(16 * found["parameters"] / GB, 3)],
            "peak_GB": [round(found["peak_GB"], 3)],
            "step_ms": [round(one, 3) for one in found["step_ms"]],
            **rates(way, found["parameters"], found["step_ms"]),
        }
        configurations.append(Configuration(way, {"way": way, "model_parameters": found["parameters"]}, samples))
        print(f"{way:34} { ({name: statistics.median(one) for name, one in samples.items()}) }", flush=True)
    write(
        options.output,
        configurations,
        versions={"torch": importlib.metadata.version("torch")},
        parameters={**SIZES, "sequences": BATCH, "repeats": STEPS - WARM_UP, "warm_up": WARM_UP},
        machine={"gpu": torch.cuda.get_device_name(0)},
    )


if __name__ == "__main__":
    main()
