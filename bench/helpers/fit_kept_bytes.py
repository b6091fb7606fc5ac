"""Bytes that autograd keeps for the backward pass on each rank of a program of the guide *When it does not fit*."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from helpers.fit_trainings import edited, run_ranks

from srunbook import memory

STEPS = 2
COUNTING = """
import collections
import torch

class Kept:
    now = most = 0
    shown = collections.Counter()

    def __init__(self, tensor):
        whole = tensor if tensor._base is None else tensor._base
        self.tensor = tensor.detach()
        self.size = 0
        if isinstance(whole, torch.nn.Parameter):
            return
        storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
        self.place, self.size = storage.data_ptr(), storage.nbytes()
        Kept.shown[self.place] += 1
        if Kept.shown[self.place] == 1:
            Kept.now += self.size
            Kept.most = max(Kept.most, Kept.now)

    def __del__(self):
        if self.size:
            Kept.shown[self.place] -= 1
            if not Kept.shown[self.place]:
                Kept.now -= self.size

torch.Kept = Kept
torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor).__enter__()

import torch.utils.checkpoint as checkpoint

class Recomputation(checkpoint._recomputation_hook):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        keep = self.pack_hook

        def count_and_keep(tensor):
            own = tensor.detach()
            own.kept = Kept(tensor)  # for as long as it is kept
            return keep(own)

        self.pack_hook = count_and_keep

checkpoint._recomputation_hook = Recomputation

class Chosen(checkpoint._VersionWrapper):
    def __init__(self, value):
        super().__init__(value)
        if type(value) is torch.Tensor:  # a compiler's has no numbers
            self.kept = Kept(value)

checkpoint._VersionWrapper = Chosen
"""
"""What a rank runs first. A storage counts once, however many tensors show it, and parameters do not count.

What a recomputed block keeps, on the way back or because it was told to, does not come through the hooks of the
program, and is counted as well.
"""

END = "    dist.destroy_process_group()"
EDITS = {"STEPS = 40\n": f"STEPS = {STEPS}\n", END: f'    print("kept", dist.get_rank(), torch.Kept.most)\n{END}'}


def saved_bytes(
    program: Path,
    processes: int,
    edits: Mapping[str, str] | None = None,
    arguments: Sequence[object] = (),
    *,
    before: str = "",
) -> list[int]:
    """Run two steps of a program on one node, with some text replaced; return the most bytes that each rank kept.

    What runs `before` it is Python as well.
    """
    with tempfile.TemporaryDirectory() as folder:
        text = run_ranks(
            COUNTING + before + edited(program, {**(edits or {}), **EDITS}), arguments, 1, processes, Path(folder)
        )
    kept = dict(map(int, line.split()[1:]) for line in text.splitlines() if line.startswith("kept "))
    return [kept[rank] for rank in range(processes)]


# The model of the guide, and how its programs divide it.
BATCH, LENGTH, WIDTH, HEADS, BLOCKS, CHARACTERS, PIECES = 32, 32, 64, 4, 4, 13, 8


def predicted_bytes(name: str, ranks: int, *, pieces: int = 1, recompute: bool = False) -> list[int]:
    """Return what the formula says of a program on each rank of one node.

    The blocks are those of `srunbook.memory`. The last norm and the last layer keep their inputs, and the loss a number
    for each character; all this has 32 bits in every program. A block that is recomputed keeps its input; the most is
    kept when the last block has been computed again, and the end of the model no longer keeps anything.

    Args:
        name: The program. What follows applies to `less_memory.py`.
        ranks: How many ranks run it.
        pieces: How many pieces a rank's share is computed in.
        recompute: Whether blocks are recomputed.

    Raises:
        KeyError: It is about another program.
    """

    def blocks(number: int, batch: int, size: int = 4, together: int = 1) -> int:
        return number * memory.block_activations(batch, LENGTH, WIDTH, HEADS, size=size, ranks=together)

    def end(batch: int, together: int = 1) -> int:
        return 4 * batch * LENGTH * (WIDTH + WIDTH // together + CHARACTERS)

    share = BATCH // ranks
    if name == "pipeline.py":
        # 1F1B: a stage has as many pieces under way as there are stages from it to the last
        piece = BATCH // PIECES
        under_way = [(ranks - rank) * blocks(BLOCKS // ranks, piece) for rank in range(ranks)]
        return [*under_way[:-1], under_way[-1] + end(piece)]
    if name == "less_memory.py":
        piece = -(-share // pieces)
        inputs = (BLOCKS - 1) * piece * LENGTH * WIDTH * 2
        again = inputs + blocks(1, piece, size=2)
        return [again if recompute else blocks(BLOCKS, piece, size=2) + end(piece)] * ranks
    one = {
        "ddp.py": blocks(BLOCKS, share) + end(share),
        "fsdp.py": blocks(BLOCKS, share, size=2) + end(share),
        # keys and values of all ranks are kept whole, as are the two inputs that tensor parallelism gathers
        "context_parallel.py": blocks(BLOCKS, BATCH, size=2, together=ranks) + end(BATCH) // ranks,
        "tensor_parallel.py": blocks(BLOCKS, BATCH, together=ranks) + end(BATCH, together=ranks),
    }[name]
    return [one] * ranks
