"""What the changes of `less_memory.py` do, counted on each rank: collectives, whole gradients, norms."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from support import forked
from support.one_oracle import PROGRAMS, train

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

LOCAL_NORM = {
    f"norm = {CLIP}": """\
parts = [parameter.grad.to_local() for parameter in model.parameters()]
        own = nn.utils.get_total_norm(parts)
        torch._foreach_mul_(parts, min(1.0, 0.25 / (own.item() + 1e-6)))
        norm = own""",
    "norm = norm.full_tensor()": "pass",
}
"""What clips by the norm of this rank's parts alone."""

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


def step_of(ranks: forked.Forked, processes: int, edits: dict[str, str] | None = None) -> Step:
    """Train with `less_memory.py` as changed; return what rank 0 did in the last step, which they all do alike.

    Raises:
        AssertionError: A rank failed, or a line to be replaced is not in the program.
    """
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
    text = train(
        ranks, LESS, 1, processes, dtype="float32", steps=2, before=COUNTING, edits=(edits or {}) | counting
    ).text
    held, sent = re.findall(r"^sent 0 (\d+) (.*)$", text, re.MULTILINE)[-1]
    counts = ast.literal_eval(sent)
    collectives = {
        kind: sum(number for name, number in counts.items() if re.search(pattern, name))
        for kind, pattern in KINDS.items()
    }
    return Step(collectives, int(held))


def norms(ranks: forked.Forked, processes: int) -> tuple[float, float, list[float]]:
    """Take one step; return the norm of the gradient on one process, over all shards, and of each shard.

    Raises:
        AssertionError: A rank failed, or a line to be replaced is not in a program.
    """
    alone = {CLIP: f'print(f"norm {{step}} {{{CLIP}.item():.17g}}")'}
    own = "nn.utils.get_total_norm([parameter.grad.to_local() for parameter in model.parameters()])"
    shared = {
        f"norm = {CLIP}": f"own = {own}\n        norm = {CLIP}",
        "norm = norm.full_tensor()": """\
norm = norm.full_tensor()
            print(f"norm {step} {norm.item():.17g}")
            print(f"own {step} {rank} {own.item():.17g}")""",
    }
    one = train(ranks, PROGRAMS / "ddp.py", 1, 1, steps=1, edits=alone).text
    text = train(ranks, LESS, 1, processes, steps=1, edits=shared).text
    found = dict(re.findall(r"^own 1 (\d+) (\S+)$", text, re.MULTILINE))
    first = [float(re.findall(r"^norm 1 (\S+)$", each, re.MULTILINE)[0]) for each in (one, text)]
    return first[0], first[1], [float(found[str(rank)]) for rank in range(processes)]
