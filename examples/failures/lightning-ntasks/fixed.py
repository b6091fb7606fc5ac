"""Lightning in a job that was asked for with --ntasks-per-node.

srunbook simulate --nodes 2 --ntasks-per-node 2 -- python fixed.py
"""

import lightning

trainer = lightning.Trainer(accelerator="cpu", devices=2, num_nodes=2, strategy="ddp", logger=False)
print(f"rank {trainer.global_rank} of {trainer.world_size}")
