"""
Which devices does each process see?
====================================

Run this program first on a cluster that is new to you.
In a few seconds, you see whether Slurm, the launcher and JAX agree on which process owns which device.
Here, the program runs in the local simulation on two nodes, with two processes on each and one CPU device per process.
"""

import sys

from srunbook import simulate

result = simulate.run([sys.executable, "query_v1.py"], nodes=2, ntasks_per_node=2)
print(result.output)

assert result.returncode == 0
assert all("# Local devices: [ 1 ]" in rank.output for rank in result.ranks)
assert all("# Global devices: [ 4 ]" in rank.output for rank in result.ranks)

# %%
# Every process has one device of its own, and all processes list the same four devices.
# A number in square brackets at the start of a line is the rank that printed it.
# On CPUs, process 1's device numbers start at 2048 and process 2's at 4096: they're unique, but have gaps.
# GPUs are numbered from 0 without gaps.
#
# Several devices for one process
# -------------------------------
#
# Here, the same two nodes have two GPUs each, and only one process on each node.
# By default, JAX would use one GPU and leave the other idle; ``query_v2.py`` asks for both.

program = [sys.executable, "query_v2.py"]
result = simulate.run(program, nodes=2, ntasks_per_node=1, gpus_per_node=2)
print(result.output)

assert result.returncode == 0
assert all("# GPU numbers of this process: [0, 1]" in rank.output for rank in result.ranks)
assert all("# Local devices: [ 2 ]" in rank.output for rank in result.ranks)

# %%
# The simulation has no GPUs: each process has two CPU devices instead.
# The GPU numbers that ``query_v2.py`` passes to JAX have no effect on CPUs. On GPUs, they decide which ones JAX opens.
