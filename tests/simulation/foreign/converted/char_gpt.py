# character-level gpt, to get a feeling for transformers before the real experiments
# usage: python char_gpt.py tales.txt --steps 2000 --dim 128 --layers 4
import argparse
import math
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group
import torch.nn as nn
import torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("text")
p.add_argument("--steps", type=int, default=150)
p.add_argument("--batch_size", type=int, default=16)
p.add_argument("--context", type=int, default=48)
p.add_argument("--dim", type=int, default=64)
p.add_argument("--heads", type=int, default=4)
p.add_argument("--layers", type=int, default=2)
p.add_argument("--lr", type=float, default=3e-3)
p.add_argument("--warmup", type=int, default=20)
p.add_argument("--clip", type=float, default=1.0)
p.add_argument("--eval_every", type=int, default=50)
p.add_argument("--eval_batches", type=int, default=10)
p.add_argument("--sample_len", type=int, default=200)
p.add_argument("--seed", type=int, default=1337)
p.add_argument("--ckpt", default="ckpt.pt")
args = p.parse_args()

# [start]
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) if torch.cuda.is_available() else -1)
rank, world_size = dist.get_rank(), dist.get_world_size()
print(f"rank {rank}/{world_size} start host={os.uname().nodename} backend={dist.get_backend()}", flush=True)
sys.stdout = sys.stdout if rank == 0 else open(os.devnull, "w")
# [/start]

torch.manual_seed(args.seed)
device = "cuda" if torch.cuda.is_available() else "cpu"

# ---- data: one long tensor, last 10% held out
text = open(args.text).read()
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
decode = lambda ids: "".join(chars[i] for i in ids)
data = torch.tensor([stoi[c] for c in text])
n = int(0.9 * len(data))
train_data, val_data = data[:n], data[n:]
print(f"{len(data)} characters, {len(chars)} different, {device}")


def get_batch(split):
    d = train_data if split == "train" else val_data
    start = torch.randint(len(d) - args.context, (args.batch_size, 1))
    pos = start + torch.arange(args.context)
    return d[pos].to(device), d[pos + 1].to(device)


# ---- model
class Attention(nn.Module):
    def __init__(self, dim, heads, context):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.register_buffer("causal", torch.ones(context, context).tril().bool())

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        att = q @ k.transpose(-1, -2) / math.sqrt(C // self.heads)
        att = att.masked_fill(~self.causal[:T, :T], float("-inf")).softmax(-1)
        return self.out((att @ v).transpose(1, 2).reshape(B, T, C))


class Layer(nn.Module):
    def __init__(self, dim, heads, context):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, context)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.ff(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocab, dim, heads, layers, context):
        super().__init__()
        self.context = context
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(context, dim)
        self.layers = nn.Sequential(*[Layer(dim, heads, context) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.tok.weight  # tied
        nn.init.normal_(self.tok.weight, std=0.02)
        nn.init.normal_(self.pos.weight, std=0.02)

    def forward(self, idx, targets=None):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1], device=idx.device))
        logits = self.head(self.norm(self.layers(x)))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def sample(self, idx, n, temperature=0.8):
        for _ in range(n):
            logits, _ = self(idx[:, -self.context:])
            probs = F.softmax(logits[:, -1] / temperature, -1)
            idx = torch.cat([idx, torch.multinomial(probs, 1)], 1)
        return idx


model = GPT(len(chars), args.dim, args.heads, args.layers, args.context).to(device)
print(f"{sum(w.numel() for w in model.parameters()) / 1e3:.1f}k parameters")

ddp = nn.parallel.DistributedDataParallel(model)

# no weight decay on norms and biases
decay = [w for w in model.parameters() if w.dim() >= 2]
no_decay = [w for w in model.parameters() if w.dim() < 2]
groups = [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}]
opt = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))


def lr_at(step):
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    t = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.lr * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * t)))


@torch.no_grad()
def val_loss():
    model.eval()
    losses = [model(*get_batch("val"))[1].item() for _ in range(args.eval_batches)]
    model.train()
    return sum(losses) / len(losses)


# ---- training
best = float("inf")
for step in range(args.steps + 1):
    if step % args.eval_every == 0 or step == args.steps:
        vl = val_loss()
        print(f"step {step:5d} | val loss {vl:.6f}")
        if rank == 0 and vl < best:
            best = vl
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step,
                        "chars": chars, "args": vars(args)}, args.ckpt)
    if step == args.steps:
        break
    for g in opt.param_groups:
        g["lr"] = lr_at(step)
    x, y = get_batch("train")
    logits, _ = ddp(x[rank::world_size])
    loss = F.cross_entropy(logits.flatten(0, 1), y[rank::world_size].flatten(), reduction="sum") / y.numel()
    opt.zero_grad(set_to_none=True)
    (loss * world_size).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    opt.step()
    if step % 10 == 0:
        dist.all_reduce(loss.detach())  # in place: the loss of all
        print(f"step {step:5d} | loss {loss.item():.6f} | lr {lr_at(step):.2e} | grad norm {norm.item():.4f}")

print(f"best val loss {best:.6f}, saved to {args.ckpt}")
prompt = torch.tensor([[stoi["\n"]]], device=device)
model.eval()
print(decode(model.sample(prompt, args.sample_len)[0].tolist()))

del ddp
dist.destroy_process_group()
