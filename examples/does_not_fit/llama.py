"""A Llama: rotary positions, grouped queries, gated layers. Its weights have the names that Hugging Face uses."""

import json
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from pretrained import weights
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu


@dataclass
class Config:
    """The shape of a model; the names are those of Hugging Face's config.json."""

    vocab_size: int = 5000
    hidden_size: int = 64
    intermediate_size: int = 160
    num_hidden_layers: int = 4
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    rope_theta: float = 10_000.0
    rope_scaling: dict | None = None  # of Llama 3.1 and later
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = False
    attention_dropout: float = 0.0


class Attention(nn.Module):
    """What each token takes from those before it. Several query heads share one key/value head."""

    def __init__(self, c):
        super().__init__()
        self.head, self.dropout = c.hidden_size // c.num_attention_heads, c.attention_dropout
        self.q_proj = nn.Linear(c.hidden_size, c.num_attention_heads * self.head, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * self.head, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * self.head, bias=False)
        self.o_proj = nn.Linear(c.num_attention_heads * self.head, c.hidden_size, bias=False)

    def forward(self, x, turn):
        q, k, v = (p(x).unflatten(2, (-1, self.head)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k, drop = rotate(q, turn), rotate(k, turn), self.dropout if self.training else 0.0
        x = scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True, enable_gqa=True)
        return self.o_proj(x.transpose(1, 2).flatten(2))


def rotate(x, turn):
    """Turn each pair of numbers by an angle that grows with the token's position."""
    first, second = x.chunk(2, dim=-1)
    cosine, sine = turn
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class MLP(nn.Module):
    """A wide layer, and a second one that gates it."""

    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Attention, then the wide layers; each adds to what came in."""

    def __init__(self, c):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MLP(c)

    def forward(self, x, turn):
        x = x + self.self_attn(self.input_layernorm(x), turn)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """The embedding, the blocks and a norm."""

    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Block(c) for _ in range(c.num_hidden_layers))
        self.norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.register_buffer("speeds", torch.empty(c.hidden_size // c.num_attention_heads // 2), persistent=False)
        self.theta, self.scaling = c.rope_theta, c.rope_scaling
        self.set_buffers()

    def set_buffers(self):
        """Compute what no file holds; once more after to_empty, which empties buffers as well."""
        speeds = self.theta ** -(torch.arange(len(self.speeds)) / len(self.speeds))
        if self.scaling:  # slow down what turns less than a few times in the length of the first training
            low, high = self.scaling["low_freq_factor"], self.scaling["high_freq_factor"]
            turns = self.scaling["original_max_position_embeddings"] * speeds / (2 * torch.pi)
            kept = ((turns - low) / (high - low)).clamp(0, 1)
            speeds = speeds * (kept + (1 - kept) / self.scaling["factor"])
        self.speeds.copy_(speeds)

    def forward(self, tokens):
        angles = torch.arange(tokens.size(1), device=tokens.device)[:, None] * self.speeds
        x = self.embed_tokens(tokens)
        turn = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.layers:
            x = block(x, turn)
        return self.norm(x)


class Llama(nn.Module):
    """A decoder, and the layer that gives each token of the vocabulary a score."""

    def __init__(self, c):
        super().__init__()
        self.model = Decoder(c)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        if c.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens):
        return self.lm_head(self.model(tokens))


def make_small(folder, **shape):
    """Write a small model with random weights, as a stand-in for yours."""
    config = Config(**shape)
    Path(folder).mkdir(parents=True)
    torch.manual_seed(0)
    model = Llama(config)
    for weight in weights(model).values():
        if weight.dim() > 1:  # not the norms
            weight.normal_(std=0.02)
    save_file(weights(model), Path(folder, "model.safetensors"))
    Path(folder, "config.json").write_text(json.dumps({"model_type": "llama", **asdict(config)}))


def read_config(folder):
    """Return the shape of the model in a Hugging Face folder."""
    path = Path(folder, "config.json")
    if not path.exists():
        sys.exit(f"error: there is no {path}: give a folder with config.json and *.safetensors")
    found = json.loads(path.read_text())
    rotation = found.get("rope_parameters") or found.get("rope_scaling") or {}  # Transformers 5, or 4
    scaled = rotation.get("rope_type", "default") != "default"
    config = Config(**{field.name: found[field.name] for field in fields(Config) if field.name in found})
    config.rope_theta = rotation.get("rope_theta", config.rope_theta)
    config.rope_scaling = rotation if scaled else None
    head = config.hidden_size // config.num_attention_heads
    other = {
        "model_type": found["model_type"] != "llama",
        "attention_bias": found.get("attention_bias"),
        "mlp_bias": found.get("mlp_bias"),
        "head_dim": (found.get("head_dim") or head) != head,
        "hidden_act": found.get("hidden_act", "silu") != "silu",
        "rope_type": scaled and rotation["rope_type"] != "llama3",
    }
    if any(other.values()):
        sys.exit(f"error: llama.py can't compute the {next(filter(other.get, other))} of {path}")
    return config
