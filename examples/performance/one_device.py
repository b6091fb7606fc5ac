"""Try what makes one device faster, one change on top of the other: a GPT, then a convolutional network.

    python one_device.py
    srun --gpus=1 --cpus-per-task=8 python one_device.py

Put your own model into gpt() or images(). The figures go to one-device.json too.
"""

import json
import shutil
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
COMPILES = shutil.which("g++") is not None  # torch.compile needs it
WIDTH, HEADS, LAYERS, CONTEXT, SEQUENCES = (1024, 16, 12, 1024, 8) if CUDA else (256, 4, 4, 256, 4)
PIXELS, IMAGES = (224, 64) if CUDA else (32, 32)
WARM_UP, STEPS = 3, 7


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.fused = False

    def forward(self, x):
        heads = self.heads(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads
        if self.fused:
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
            later = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool, device=x.device).triu(1)
            mixed = scores.masked_fill(later, float("-inf")).softmax(3) @ value
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.norm2(x))))


def gpt():
    return nn.Sequential(nn.Embedding(256, WIDTH), *(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, 256))


def images():
    sizes = [3, 32, 64, 128, 256]
    layers = [
        nn.Sequential(nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU())
        for before, after in pairwise(sizes)
    ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], 10))


def measure(rows, kind, change, model, x, y, samples, bf16=False, fused=False):
    """Train a few steps; note the median of their times."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)
    seconds = []
    for _ in range(WARM_UP + STEPS):
        start = time.perf_counter()
        with torch.autocast(DEVICE, torch.bfloat16) if bf16 else nullcontext():
            loss = cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if CUDA:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    rate = samples / median(seconds[WARM_UP:])
    rows.append({"kind": kind, "change": change, "rate": rate, "unit": "tokens/s" if kind == "GPT" else "images/s"})
    first = next(row["rate"] for row in rows if row["kind"] == kind)
    print(f"{kind:6} {change:34} {rate:12.0f} {rows[-1]['unit']}  {rate / first:5.2f} x", flush=True)


def main():
    print(f"device {torch.cuda.get_device_name() if CUDA else 'cpu'}, torch {torch.__version__}", flush=True)
    rows = []
    model = gpt().to(DEVICE)
    x = torch.randint(256, (SEQUENCES, CONTEXT), device=DEVICE)
    tokens = x.numel()
    measure(rows, "GPT", "float32", model, x, x, tokens)
    if CUDA:
        torch.set_float32_matmul_precision("high")
        measure(rows, "GPT", "+ TF32", model, x, x, tokens)
    measure(rows, "GPT", "+ bfloat16", model, x, x, tokens, bf16=True)
    for block in model[1:-1]:
        block.fused = True
    measure(rows, "GPT", "+ scaled_dot_product_attention", model, x, x, tokens, bf16=True)
    measure(rows, "GPT", "+ fused AdamW", model, x, x, tokens, bf16=True, fused=True)
    compiled = torch.compile(model, dynamic=False) if COMPILES else model
    if COMPILES:
        measure(rows, "GPT", "+ torch.compile", compiled, x, x, tokens, bf16=True, fused=True)
    else:
        print("torch.compile is left out: it needs g++ on this node, for example from `module load gcc`", flush=True)
    x = x.repeat(4, 1)
    measure(rows, "GPT", "+ four times the batch", compiled, x, x, 4 * tokens, bf16=True, fused=True)

    model, x = images().to(DEVICE), torch.randn(IMAGES, 3, PIXELS, PIXELS, device=DEVICE)
    y = torch.randint(10, (IMAGES,), device=DEVICE)
    measure(rows, "images", "TF32" if CUDA else "float32", model, x, y, IMAGES)
    measure(rows, "images", "+ bfloat16", model, x, y, IMAGES, bf16=True)
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    measure(rows, "images", "+ channels last", model, x, y, IMAGES, bf16=True)
    if COMPILES:
        measure(rows, "images", "+ torch.compile", torch.compile(model, dynamic=False), x, y, IMAGES, bf16=True)
    Path("one-device.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
