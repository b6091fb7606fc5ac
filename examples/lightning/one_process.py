"""One process, no launcher.

python one_process.py
"""

from same_model import EPOCHS, keep, make_loader, make_model, make_optimizer
from torch.nn.functional import cross_entropy

model = make_model()
optimizer = make_optimizer(model)
loader = make_loader(rank=0, world=1)
losses = []
for _ in range(EPOCHS):
    for points, labels in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(points), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
keep(model, losses, rank=0)
