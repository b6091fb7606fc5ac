"""What recomputation, gradient accumulation and clipping over shards do in `less_memory.py` of *When it does not fit*.

python bench/fit_less_memory.py         # writes bench/results/fit_less_memory.json

Counts, which are the same in every run: bytes that autograd keeps, collectives of a step, and norms in float64.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version

from helpers.fit_kept_bytes import predicted_bytes, saved_bytes
from helpers.fit_trainings import PROGRAMS, train
from helpers.program import options_of, write
from measurements import Configuration

LESS = PROGRAMS / "less_memory.py"

CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 0.25)"
"""How a program of the guide clips its gradients."""

EVERY_PIECE = {"model.set_requires_gradient_sync(number == PIECES)": "model.set_requires_gradient_sync(True)"}
"""What sends the gradients after each piece."""

KEEP_WHOLE = {
    "            model.set_requires_gradient_sync(number == PIECES)": """\
            model.set_requires_gradient_sync(number == PIECES)
            model.set_reshard_after_forward(False)
            model.set_reshard_after_backward(number == PIECES)"""
}
"""What keeps the parameters whole from the first piece to the last."""

NO_RECOMPUTATION = {"Recomputed() for": "Block() for"}
ONE_PIECE = {"PIECES = 4 ": "PIECES = 1 "}

COUNTING = """
import collections
import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

class Sent(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if DTensor in types:
            return NotImplemented  # it calls plain operations in turn
        if function.namespace in ("c10d", "_c10d_functional"):
            torch.sent[function.__name__] += 1
        return function(*arguments, **(options or {}))

def gradients(model):
    held = []
    for module in model.modules():
        if hasattr(module, "_get_fsdp_state"):
            for group in module._get_fsdp_state()._fsdp_param_groups:
                for parameter in group.fsdp_params:
                    held += [parameter.unsharded_accumulated_grad, parameter._unsharded_param.grad]
                    if parameter.sharded_param.grad is not None:
                        held.append(parameter.sharded_param.grad.to_local())
    return sum(tensor.nbytes for tensor in held if tensor is not None)

torch.sent = collections.Counter()
torch.held = 0
torch.gradients = gradients
Sent().__enter__()
"""
"""What a rank runs first."""

KINDS = {"all_gathers": "all_?gather", "reduce_scatters": "reduce_scatter", "all_reduces": "all_?reduce"}
"""Collectives, and what their operations are called in torch."""


@dataclass(frozen=True)
class Step:
    """What a rank did in one step.

    Args:
        collectives: How many it took part in, by the names of `KINDS`.
        gradients: The most bytes of gradients that it held after a piece.
    """

    collectives: dict[str, int]
    gradients: int


def step_of(processes: int, edits: Mapping[str, str]) -> Step:
    """Train with `less_memory.py` as changed; return what rank 0 did in the last step, which they all do alike."""
    counting = {
        "        optimizer.zero_grad()\n": "        optimizer.zero_grad()\n        torch.sent.clear()\n",
        "            total += loss.detach()\n": """\
            total += loss.detach()
            torch.held = max(torch.held, torch.gradients(model))
""",
        "        optimizer.step()\n": """\
        optimizer.step()
        print("sent", rank, torch.held, dict(torch.sent))
""",
    }
    text = train(LESS, 1, processes, dtype="float32", steps=2, before=COUNTING, edits={**edits, **counting}).text
    held, sent = re.findall(r"^sent 0 (\d+) (.*)$", text, re.MULTILINE)[-1]
    counts = ast.literal_eval(sent)
    collectives = {
        kind: sum(number for name, number in counts.items() if re.search(pattern, name))
        for kind, pattern in KINDS.items()
    }
    return Step(collectives, int(held))


def norms(processes: int) -> tuple[float, float, list[float]]:
    """Take one step; return the norm of the gradient on one process, over all shards, and of each shard."""
    alone = {CLIP: f'print(f"norm {{step}} {{{CLIP}.item():.17g}}")'}
    own = "nn.utils.get_total_norm([parameter.grad.to_local() for parameter in model.parameters()])"
    shared = {
        f"norm = {CLIP}": f"own = {own}\n        norm = {CLIP}",
        "norm = norm.full_tensor()": """\
norm = norm.full_tensor()
            print(f"norm {step} {norm.item():.17g}")
            print(f"own {step} {rank} {own.item():.17g}")""",
    }
    one = train(PROGRAMS / "ddp.py", 1, 1, steps=1, edits=alone).text
    text = train(LESS, 1, processes, steps=1, edits=shared).text
    found = dict(re.findall(r"^own 1 (\d+) (\S+)$", text, re.MULTILINE))
    first = [float(re.findall(r"^norm 1 (\S+)$", each, re.MULTILINE)[0]) for each in (one, text)]
    return first[0], first[1], [float(found[str(rank)]) for rank in range(processes)]


RANKS = 4
MIB = 2**20

KEEPING: dict[str, tuple[int, bool, dict[str, str]]] = {
    "as in fsdp.py": (1, False, NO_RECOMPUTATION | ONE_PIECE),
    "four pieces": (4, False, NO_RECOMPUTATION),
    "blocks recomputed": (1, True, ONE_PIECE),
    "both": (4, True, {}),
}
SENDING = {"after each piece": EVERY_PIECE, "after the last": {}, "after the last, parameters kept whole": KEEP_WHOLE}


def kept() -> list[Configuration]:
    """Count the bytes that autograd keeps, on the rank that keeps most."""
    rows = []
    for name, (pieces, recompute, edits) in KEEPING.items():
        found = max(saved_bytes(LESS, RANKS, edits))
        predicted = max(predicted_bytes(LESS.name, RANKS, pieces=pieces, recompute=recompute))
        samples = {"kept_MiB": [found / MIB], "formula_MiB": [predicted / MIB]}
        rows.append(Configuration(name, {"shows": "recomputation", "change": name}, samples))
    return rows


def sent() -> list[Configuration]:
    """Count the collectives of a step, and the gradients that a rank holds after a piece."""
    rows = []
    for name, edits in SENDING.items():
        step = step_of(RANKS, edits)
        samples: dict[str, list[float]] = {kind: [number] for kind, number in step.collectives.items()}
        samples["gradients_MiB"] = [step.gradients / MIB]
        rows.append(Configuration(name, {"shows": "accumulation", "gradients_are_sent": name}, samples))
    return rows


def clipped() -> list[Configuration]:
    """Take the norm of the first gradient on one process, over all shards, and of each shard."""
    one, over_shards, own = norms(RANKS)
    found = {"one process": one, "all shards": over_shards}
    found |= {f"rank {rank} alone": norm for rank, norm in enumerate(own)}
    return [
        Configuration(name, {"shows": "clipping", "norm_of": name}, {"norm": [norm]}) for name, norm in found.items()
    ]


def main() -> None:
    """Count all three on one node."""
    options = options_of(__doc__, "fit_less_memory")

    configurations = [*kept(), *sent(), *clipped()]
    write(
        options.output,
        configurations,
        versions={"torch": version("torch")},
        parameters={"ranks": RANKS, "across_ranks": "maximum", "backend": "gloo"},
    )


if __name__ == "__main__":
    main()
