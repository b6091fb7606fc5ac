"""What compiling, recomputing and prefetching do to a step of a Llama with FSDP: bytes, operations, time.

python bench/fit_compiled.py         # writes bench/results/fit_compiled.json; needs a C++ compiler; 10 minutes

The program is full/llama_requeue.py on one node, with another way to treat its blocks. Bytes and operations are those
of the rank that has most, and times those of rank 0, from the third step on.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from helpers.fit_kept_bytes import saved_bytes
from helpers.fit_trainings import PROGRAMS, edited, run_ranks
from helpers.program import options_of, write
from measurements import Configuration

sys.path.insert(0, str(PROGRAMS))

from llama import make_small

PROGRAM = PROGRAMS / "full" / "llama_requeue.py"
RANKS = 4
MIB = 2**20
SHAPE = {"vocab_size": 2000, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6}
STEPS, WARM_UP = 5, 3
LONGER = {"LENGTH = 32 ": "LENGTH = 128 ", "BATCH_SIZE = 32 ": "BATCH_SIZE = 16 "}
COMPILE = '        block.compile(backend="inductor" if cuda else "aot_eager")  # the second needs no C++ compiler\n'
"""The line of the program that other lines take the place of."""

RECOMPUTE = "        block.forward = recomputed(block.forward)\n"
RECOMPUTE_ALL = "        block.forward = recomputed(block.forward, [])\n"
COMPILED = "        block.compile()\n"
WAYS = {
    "as they are": "",
    "compiled": COMPILED,
    "recomputed": RECOMPUTE_ALL,
    "recomputed and compiled": RECOMPUTE_ALL + COMPILED,
    "recomputed except for costly operations": RECOMPUTE,
    "recomputed except for costly operations, and compiled": RECOMPUTE + COMPILED,
}
BEFORE = "import torch\nfrom blocks import recomputed\nfrom torch.utils.flop_counter import FlopCounterMode\n"

OPERATIONS = {
    "        (loss * world_size).backward()": """\
        counter = FlopCounterMode(display=False)
        with counter:
            (loss * world_size).backward()""",
    "        optimizer.step()\n": """\
        optimizer.step()
        print("found", rank, counter.get_total_flops())
""",
}
TIMES = {
    "        optimizer.zero_grad()\n": "        began = time.perf_counter()\n        optimizer.zero_grad()\n",
    "        optimizer.step()\n": """\
        optimizer.step()
        print("found", rank, 1000 * (time.perf_counter() - began))
""",
}
BLOCKS = {
    "        optimizer.step()\n": """\
        optimizer.step()
        print("found", rank, Most.blocks)
"""
}
FETCHING = {
    "by default": "",
    "one block earlier": "set_modules_to_forward_prefetch(blocks[number + 1 : number + 2])",
    "two blocks earlier": "set_modules_to_forward_prefetch(blocks[number + 1 : number + 3])",
    "kept whole until the backward pass": "set_reshard_after_forward(False)",
}
SHARDED = "    fully_shard(model, mp_policy=PRECISION)"

WHOLE = """
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

class Most:
    groups, blocks = set(), 0

def counting(method):
    def counted(group, *arguments, **options):
        result = method(group, *arguments, **options)
        Most.groups.add(group)
        whole = [each for each in Most.groups if each.is_unsharded or each._all_gather_result is not None]
        Most.blocks = max(Most.blocks, sum("layers" in each._module_fqn for each in whole))
        return result
    return counted

FSDPParamGroup.unshard = counting(FSDPParamGroup.unshard)
FSDPParamGroup.wait_for_unshard = counting(FSDPParamGroup.wait_for_unshard)
"""
"""What a rank runs first, to count the blocks whose parameters it holds whole or fetches."""


def found(weights: Path, edits: Mapping[str, str], steps: int, before: str = "") -> list[float]:
    """Run a changed program for some steps; return what rank 0 found in each."""
    with tempfile.TemporaryDirectory() as folder:
        program = BEFORE + before + edited(PROGRAM, LONGER | {"STEPS = 40\n": f"STEPS = {steps}\n"} | edits)
        text = run_ranks(program, [weights], 1, RANKS, Path(folder))
    return [float(each) for each in re.findall(r"^found 0 (\S+)$", text, re.MULTILINE)]


def treated(weights: Path) -> list[Configuration]:
    """Count and time steps whose blocks are compiled or recomputed."""
    rows = []
    for way, lines in WAYS.items():
        edits = {COMPILE: lines}
        kept = saved_bytes(PROGRAM, RANKS, LONGER | edits, [weights], before=BEFORE)
        samples = {"kept_MiB": [max(kept) / MIB], "step_ms": found(weights, edits | TIMES, WARM_UP + STEPS)[WARM_UP:]}
        if COMPILED not in lines:  # the counter does not see into what is compiled
            samples["backward_GFLOP"] = [found(weights, edits | OPERATIONS, 1)[0] / 1e9]
        rows.append(Configuration(way, {"shows": "compiling", "blocks": way}, samples))
        print(way, samples, flush=True)
    return rows


def prefetched(weights: Path) -> list[Configuration]:
    """Count the blocks that a rank holds whole at once, for each way to fetch them."""
    rows = []
    for way, call in FETCHING.items():
        calls = "    blocks = list(model.model.layers)\n    for number, block in enumerate(blocks):\n"
        edits = {COMPILE: "", SHARDED: f"{SHARDED}\n{calls}        block.{call}\n    0" if call else SHARDED}
        samples = {
            "blocks_whole_at_once": [max(found(weights, edits | BLOCKS, 2, WHOLE))],
            "step_ms": found(weights, edits | TIMES, WARM_UP + STEPS)[WARM_UP:],
        }
        rows.append(Configuration(f"fetched {way}", {"shows": "prefetching", "blocks_are_fetched": way}, samples))
        print(way, samples, flush=True)
    return rows


def main() -> None:
    """Measure on one node."""
    options = options_of(__doc__, "fit_compiled")

    with tempfile.TemporaryDirectory() as name:
        weights = Path(name, "weights")
        make_small(weights, **SHAPE)
        rows = [*treated(weights), *prefetched(weights)]
    write(
        options.output,
        rows,
        versions={"torch": version("torch")},
        parameters={**SHAPE, "ranks": RANKS, "backend": "gloo", "repeats": STEPS, "warm_up": WARM_UP},
    )


if __name__ == "__main__":
    main()
