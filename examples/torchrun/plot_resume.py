"""
Stopped and resumed: the same numbers, bit for bit
==================================================

A training that continues from a checkpoint should end where it would have ended without the break.
Three processes train for four epochs, and then again from the checkpoint of the second.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from srunbook import simulate
from srunbook.ranklog import RankEnd, parse_rank_lines


def train(folder, *arguments):
    """Train on three processes; return the fingerprint of their parameters at the end."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    program = ["full/train_distributed.py", "--batch-size=63", f"--checkpoint-dir={folder}", *arguments]
    result = simulate.run([*launcher, *program], nodes=1, timeout=300, env={"OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.failure
    print("\n".join(line for line in result.output.splitlines() if "Epoch" in line or "Resuming" in line))
    ends = [line for line in parse_rank_lines(result.output.splitlines()) if isinstance(line, RankEnd)]
    (fingerprint,) = {end.params for end in ends}
    return fingerprint


whole, stopped = tempfile.TemporaryDirectory(), tempfile.TemporaryDirectory()
in_one_go = train(whole.name, "--epochs=4")
print(sorted(path.name for path in Path(whole.name).glob("[!.]*")))

# %%
# A training that was stopped after its second epoch has left the checkpoint of that epoch, and continues from it:

shutil.copy(Path(whole.name, "checkpoint_epoch_2.pt"), stopped.name)
resumed = train(stopped.name, "--epochs=4", "--resume")

print(in_one_go)
print(resumed)

assert in_one_go == resumed
whole.cleanup()
stopped.cleanup()

# %%
# From three processes on, this takes more than saving everything.
# DDP sends its gradients in groups. At the first step of a process it groups them differently than at all later ones,
# and with three or more processes sums in another grouping round differently.
# Therefore `warm_up` makes one backward pass and throws its gradients away, before the checkpoint is loaded.
