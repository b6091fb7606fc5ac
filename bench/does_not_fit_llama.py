"""How far each layout of a Llama is from one process, after 20 steps in 64 bits.

python bench/does_not_fit_llama.py            # writes bench/results/does_not_fit_llama.json
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from helpers.fit_trainings import PROGRAMS, STEPS, difference, train
from helpers.program import options_of, write
from measurements import Configuration

sys.path.insert(0, str(PROGRAMS))

from llama import make_small

TOGETHER, PIPELINE = PROGRAMS / "llama_fsdp_tp.py", PROGRAMS / "llama_pipeline.py"
IN_64_BITS = {".float()": ""}
"""What is replaced where the logits would become 32 bits."""

COMPILED = {
    "from llama import": "from blocks import recomputed, wait_for\nfrom llama import",
    "    for block in model.model.layers:\n": """\
    wait_for(model.model.embed_tokens)
    for block in model.model.layers:
        block.forward = recomputed(block.forward)
        block.compile()
""",
}
"""What recomputes and compiles each block."""

LAYOUTS = ((3, 1), (1, 4), (2, 2))
"""Sizes of the mesh: ranks that shard, and ranks that compute a layer together."""

SHAPES = {
    # number of words, whether the head is tied: numbers of stages
    (5000, False): (2, 4),
    (4999, False): (3,),
    (4999, True): (),
}


def main() -> None:
    """Train one process of each shape, then every layout of it."""
    options = options_of(__doc__, "does_not_fit_llama")
    configurations = []
    for (words, tied), stages in SHAPES.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name, "weights")
            make_small(folder, vocab_size=words, tie_word_embeddings=tied)
            one = train(TOGETHER, 1, 1, folder, 1, edits=IN_64_BITS)
            runs = [(TOGETHER, shard, tensor, 1, IN_64_BITS) for shard, tensor in LAYOUTS]
            runs += [(PIPELINE, 1, 1, number, {}) for number in stages]
            if (words, tied) == (5000, False):
                runs.append((TOGETHER, 2, 2, 1, IN_64_BITS | COMPILED))
            for program, shard, tensor, pipeline, edits in runs:
                arguments = (folder, tensor) if program == TOGETHER else (folder,)
                found = train(program, 1, shard * tensor * pipeline, *arguments, edits=edits)
                loss, parameter = difference(found, one)
                parameters = {"program": program.name, "vocabulary": words, "tied": "yes" if tied else "no"}
                parameters |= {
                    "blocks": "recomputed and compiled" if COMPILED.items() <= edits.items() else "as they are"
                }
                parameters |= {"pipeline": pipeline, "shard": shard, "tensor": tensor}
                samples = {"loss_in_float64": [loss], "parameters_in_float64": [parameter]}
                label = (
                    f"{program.stem} {words} {parameters['tied']} {pipeline}x{shard}x{tensor} {parameters['blocks']}"
                )
                configurations.append(Configuration(label, parameters, samples))
                print(label, samples, flush=True)
    write(
        options.output,
        configurations,
        versions={"torch": version("torch")},
        parameters={"steps": STEPS, "backend": "gloo", "difference": "largest absolute"},
    )


if __name__ == "__main__":
    main()
