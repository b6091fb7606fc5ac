"""
Which devices does each process see?
====================================

The first thing to run on a cluster that is new to you.
It takes seconds, and it shows whether Slurm, the launcher and JAX agree about who owns which device.
Here it runs in the local simulation: two nodes, two processes on each, one CPU device for each process.
"""

import sys

from srunbook import simulate

result = simulate.run([sys.executable, "query_v1.py"], nodes=2, ntasks_per_node=2)
print(result.output)

assert result.returncode == 0
assert all("# Local devices: [ 1 ]" in rank.output for rank in result.ranks)
assert all("# Global devices: [ 4 ]" in rank.output for rank in result.ranks)

# %%
# Every process has one device of its own, and all of them list the same four.
# A number in square brackets at the start of a line is the rank that printed it.
# On CPUs the devices of process 1 are numbered from 2048, those of process 2 from 4096: the numbers have gaps,
# and are unique. On GPUs they count from 0 without gaps.
#
# Several devices for one process
# -------------------------------
#
# The same two nodes with two GPUs each, and only one process on each node.
# Left alone, JAX would take one GPU and leave the other idle; ``query_v2.py`` asks for both.

program = [sys.executable, "query_v2.py"]
result = simulate.run(program, nodes=2, ntasks_per_node=1, gpus_per_node=2)
print(result.output)

assert result.returncode == 0
assert all("# GPU numbers of this process: [0, 1]" in rank.output for rank in result.ranks)
assert all("# Local devices: [ 2 ]" in rank.output for rank in result.ranks)

# %%
# There is no GPU in the simulation: each process has two CPU devices in their place.
# The numbers that ``query_v2.py`` passes on have no effect on them. On GPUs they decide which ones JAX opens.
