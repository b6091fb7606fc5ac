"""Stand in for a training program: say where each rank is, and whether all of them meet at rank 0.

It imports only what comes with Python. Copy it over the program that your job script starts.
"""

import os
import socket
import sys
import time
from collections import Counter

env = os.environ
rank, ranks = int(env.get("RANK", env["SLURM_PROCID"])), int(env.get("WORLD_SIZE", env["SLURM_NTASKS"]))
host, local_rank = env["SLURMD_NODENAME"], int(env.get("LOCAL_RANK", env["SLURM_LOCALID"]))
address, port = env["MASTER_ADDR"], int(env["MASTER_PORT"])
gpus = env.get("CUDA_VISIBLE_DEVICES", "").split(",")
gpu = gpus[local_rank] if local_rank < len(gpus) else gpus[-1]
me = f"rank {rank}/{ranks} host={host} local_rank={local_rank} gpu={gpu or 'none'}"

if rank == 0:
    print(f"{me} master={address}:{port} arguments: {' '.join(sys.argv[1:])}", flush=True)
    server = socket.create_server((address, port), backlog=ranks)  # refused where rank 0 is on another node
    server.settimeout(60)
    peers = [server.accept()[0] for _ in range(ranks - 1)]  # all stay open, as in a training
    lines = [me, *(peer.recv(200).decode() for peer in peers)]
    print(max(lines, key=lambda line: int(line[5:].partition("/")[0])))
    nodes = Counter(line.split()[2] for line in lines)
    taken = Counter(" ".join(line.split()[2:5:2]) for line in lines)
    print(f"{ranks} ranks met; on {len(nodes)} nodes there are {min(nodes.values())} to {max(nodes.values())} of them")
    print(f"GPUs with two ranks: {[place for place, count in taken.items() if count > 1][:4] if gpu else 'no GPUs'}")
else:
    while True:
        try:
            peer = socket.create_connection((address, port), timeout=60)
            break
        except ConnectionRefusedError:  # rank 0 does not listen yet
            time.sleep(1)
    peer.sendall(me.encode())
    peer.recv(1)  # until rank 0 has heard all
