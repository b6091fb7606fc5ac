"""
One sum over all processes
==========================

An all-reduce: every device gives a number, and every device gets the sum.
It is what data-parallel training does with its gradients at every step.
Two nodes with two processes each, in the local simulation.
"""

import sys

from srunbook import simulate

result = simulate.run([sys.executable, "allreduce.py"], nodes=2, ntasks_per_node=2)
print(result.output)

assert result.returncode == 0
assert all(f"Process {rank.rank} has y=[4.]" in rank.output for rank in result.ranks)

# %%
# Four devices gave a 1 each, and each process holds a 4.
# The lines with ``[Gloo]`` come from the library that carries messages between CPUs; between GPUs it is NCCL.
#
# The same in today's JAX
# -----------------------
#
# With ``pmap``, each process holds a small array of its own.
# With a mesh and a sharding, ``x`` is one array over all processes, and the result is an ordinary number.

result = simulate.run([sys.executable, "allreduce_modern.py"], nodes=2, ntasks_per_node=2)
print(result.output)

assert result.returncode == 0
for rank in result.ranks:
    for way in ("jit", "shard_map"):
        assert f"Process {rank.rank} has y=4.0 with {way} (1 all-reduce)" in rank.output

# %%
# ``jit`` was told where the result should stand, and put the all-reduce there by itself.
# ``shard_map`` was told each step. The compiled programs hold the same single all-reduce.
