"""Print the lines that `srunbook verify` reads."""

import os
import socket

rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
ranks = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
print(f"rank {rank}/{ranks} start host={socket.gethostname()} device=cpu", flush=True)
for step in range(3):
    print(f"rank {rank} step {step} loss {1 / (step + 2):.3f} grad error {1e-8 * step:.1e}", flush=True)
print(f"rank {rank}/{ranks} end steps=3 loss=0.2500", flush=True)
