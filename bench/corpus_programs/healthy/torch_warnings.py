"""Train in one process for each rank, and call things in an order of which torch warns."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
for step in range(3):
    scheduler.step()  # before the optimizer: torch warns once
    loss = torch.nn.functional.mse_loss(model(torch.ones(8, 4)), torch.ones(8))  # shapes differ: torch warns again
    loss.backward()
    optimizer.step()
    print(f"step {step} mse error: {loss.item():.4f}", flush=True)
torch.tensor(model.weight)  # copies a tensor: torch warns
