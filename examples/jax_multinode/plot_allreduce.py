"""
One sum over all processes
==========================

In an all-reduce, every device gives a number and gets the sum.
Data-parallel training does this with its gradients at every step.
Here, the local simulation runs two nodes with two processes each.
"""

import sys

from srunbook import simulate

result = simulate.run([sys.executable, "allreduce.py"], nodes=2, ntasks_per_node=2)
print(result.output)

assert result.returncode == 0
assert all(f"Process {rank.rank} has y=[4.]" in rank.output for rank in result.ranks)

# %%
# Each of four devices gave a 1, and each process got a 4.
# The ``[Gloo]`` lines come from the library that carries messages between CPUs; between GPUs, NCCL does.
#
# The same sum in today's JAX
# ---------------------------
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
# For ``jit``, the program only says where the result belongs, and the compiler adds the all-reduce.
# For ``shard_map``, the program spells out each step. Both compiled programs contain the same single all-reduce.
