"""Split the fused projections of a model, as Phi-3 has them, into layers that tensor parallelism can cut.

    python unfuse.py phi weights

Both are folders with config.json and *.safetensors. The second one then holds a Llama with the same weights.
"""

import json
import sys
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

source, target = map(Path, sys.argv[1:])
config = json.loads((source / "config.json").read_text())
if config.get("partial_rotary_factor", config.get("rope_parameters", {}).get("partial_rotary_factor", 1)) != 1:
    sys.exit("error: this model turns only a part of each head, and a Llama turns all of it")
head = config["hidden_size"] // config["num_attention_heads"]
queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
SPLIT = {
    "qkv_proj": {"q_proj": queries, "k_proj": keys, "v_proj": keys},
    "gate_up_proj": {"gate_proj": config["intermediate_size"], "up_proj": config["intermediate_size"]},
}

target.mkdir()
for path in sorted(source.glob("*.safetensors")):
    weights = {}
    with safe_open(path, framework="pt") as file:
        for name in sorted(file.keys()):
            weight = file.get_tensor(name)
            fused = next((fused for fused in SPLIT if fused in name), None)
            if fused is None:
                weights[name] = weight
                continue
            rows = SPLIT[fused]
            for part, piece in zip(rows, weight.split([*rows.values()]), strict=True):
                weights[name.replace(fused, part)] = piece.contiguous()
    save_file(weights, target / path.name)
(target / "config.json").write_text(json.dumps(config | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
