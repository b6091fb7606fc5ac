"""Bytes of parameters, gradients and optimizer on each rank of a program of the guide *When it does not fit*."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from support.one_oracle import Training

HELD = """
    def held(tensors):
        local = [getattr(tensor, "to_local", lambda: tensor)() for tensor in tensors]
        storages = {tensor.untyped_storage() for tensor in local}
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    states = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    gradients = [parameter.grad for parameter in model.parameters()]
    print("held", rank, held(model.parameters()), held(gradients), held(states))
    if rank == 0:
        print("shapes", [tuple(parameter.shape) for parameter in model.parameters()])
"""
"""What a rank prints in the end: the bytes of all storage behind its parameters, gradients and optimizer."""


def held(
    run: Callable[..., Training], name: str, ranks: int, end: str, edits: dict[str, str] | None = None
) -> tuple[list[list[int]], list[tuple[int, ...]]]:
    """Run a program in float32; return what each rank holds before a line near its end, and the parameters' shapes."""
    text = run(name, 1, ranks, dtype="float32", edits={**(edits or {}), end: HELD + end}).text
    assert "shapes" in text, text
    found = [[int(word) for word in line.split()[1:]] for line in text.splitlines() if line.startswith("held")]
    return sorted(found), ast.literal_eval(re.findall(r"^shapes (.*)$", text, re.MULTILINE)[0])
