"""
A resumed run ends with the same numbers, bit for bit
=====================================================

A run that resumes from a checkpoint should end with the same parameters as an uninterrupted run.
Three processes train for four epochs, and then train again from the second epoch's checkpoint.
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
# A run that stops after its second epoch leaves that epoch's checkpoint. Here, a new run resumes from it:

shutil.copy(Path(whole.name, "checkpoint_epoch_2.pt"), stopped.name)
resumed = train(stopped.name, "--epochs=4", "--resume")

print(in_one_go)
print(resumed)

assert in_one_go == resumed
whole.cleanup()
stopped.cleanup()

# %%
# With three or more processes, it isn't enough to save everything.
# DDP sends gradients in groups, and groups them differently in a process's first step than in all later steps.
# With so many processes, different groups lead to different rounding errors.
# Therefore, ``warm_up`` runs one backward pass and discards its gradients before the program loads the checkpoint.
